// The page: one state, shown; each thing the user does makes the next state, which the browser's Back undoes.

import { Problem, askAttention, askGallery, askSearch } from "./api.js";
import { panel } from "./attention.js";
import { Browse } from "./browse.js";
import { showChain } from "./chain.js";
import { Composer } from "./composer.js";
import { byId, counted, make } from "./dom.js";
import { judging, refusal, refusalAlways } from "./feedback.js";
import { Filters, whereOf } from "./filters.js";
import { Grid } from "./grid.js";
import { MAX_PICTURES, asked, emptyTurn, fromAddress, initial, lost, queryOf, saysNothing, taken, toAddress } from "./state.js";
import { begin, cancel, hideEmpty, hideProblem, say, showEmpty, showProblem } from "./status.js";
import { tile } from "./tile.js";

const BELOW = { gallery: 42, results: 78, facts: 20 }; // pixels of a tile below its picture, metadata apart
const REMEMBERED = 30;

let state = initial();
let gallery = null;
let filters = null;
let depth = 0; // how many states of ours the browser's Back can undo
const answers = new Map(); // query -> answer, so that going back is instant
const grid = new Grid(byId("grid"));
const browse = new Browse({
  make: (image) => tile(image, { onTake: take, onAdd: add }),
  onCome: () => grid.refresh(),
  onFail: (problem) => showProblem(problem, () => grid.render()),
});
const composer = new Composer({
  search: () => go(asked(state)),
  change: (draft, settings) => replace({ ...state, draft: structuredClone(draft), settings: { ...settings } }),
  removed: () => { composer.show(state); byId("text").focus(); },
  drop: bring,
  restart: () => { go(initial()); byId("text").focus(); },
});

/** Go to a new state, which Back undoes, and show what it asks for. */
function go(next, { load = true } = {}) {
  depth += 1;
  history.pushState({ state: next, depth }, "", toAddress(next));
  state = next;
  show({ load });
}

/** Change the state in place: what is being typed is no step of its own. */
function replace(next) {
  state = next;
  history.replaceState({ state, depth }, "", toAddress(state));
}

function show({ load = true } = {}) {
  const words = state.view === "results" ? state.turns.at(-1).text.trim() || "similar pictures" : "search with a picture and a sentence";
  document.title = state.view === "results" ? `${words} – Triptych` : `Triptych: ${words}`;
  composer.show(state);
  showChain(state, (number) => {
    const turns = state.turns.slice(0, number + 1);
    go({ ...state, turns, at: number, draft: structuredClone(turns.at(-1)), view: "results" });
  });
  filters?.show(state.filters);
  const why = state.view === "results" ? refusal(state.turns.at(-1), gallery) : refusalAlways(gallery);
  byId("feedback-note").textContent = why ?? "";
  byId("feedback-note").hidden = !why;
  byId("back").disabled = depth === 0;
  byId("browse").hidden = state.view === "gallery";
  byId("mattered").hidden = state.view === "gallery" || Boolean(gallery?.attention_refused);
  if (load) {
    closeAttention();
    hideProblem();
    if (state.view === "results") results();
    else pictures();
  }
}

async function results() {
  const now = state;
  if (lost(now.turns)) {
    nothingShown("Results");
    const problem = new Problem("The picture that you brought is gone, because the page was loaded again.", "Drop or choose it once more.");
    showProblem(problem, null);
    return;
  }
  const query = queryOf(now, whereOf(now.filters));
  const key = JSON.stringify([query.query, now.turns]);
  let answer = answers.get(key);
  if (!answer) {
    const work = begin("Searching", { onCancel: () => undoAfterCancel() });
    try {
      answer = await askSearch(query, work.signal);
    } catch (problem) {
      if (problem.name === "AbortError") return;
      if (state === now) { nothingShown("Results"); showProblem(problem, () => show()); }
      return;
    } finally {
      work.end();
    }
    answers.set(key, answer);
    if (answers.size > REMEMBERED) answers.delete(answers.keys().next().value);
    if (state.turns !== now.turns || state.view !== now.view || state.filters !== now.filters) return;
  } else cancel();
  showResults(now.turns.at(-1), answer);
}

function showResults(turn, answer) {
  const why = refusal(turn, gallery);
  byId("title").textContent = "Results";
  const how = answer.method === "exact" ? "all" : "the most likely";
  byId("subtitle").textContent = `${counted(answer.hits.length, "picture")}, best first; ${how} ${counted(answer.scored, "picture")} compared in ${Math.max(1, Math.round(answer.milliseconds))} ms`;
  const tiles = answer.hits.map((hit) => () => tile(hit, { onTake: take, onAdd: add, actions: why ? [] : judging(turn, hit) }));
  hideEmpty();
  grid.show({ count: tiles.length, get: (place) => tiles[place](), want: () => {} }, { below: below("results") });
  if (!tiles.length) nothingPasses("Nothing was found");
  say(`${counted(answer.hits.length, "result")}. ${answer.hits.length ? `The best is ${answer.hits[0].id}.` : ""}`);
  scrollToFound();
}

async function pictures() {
  const now = state;
  const work = begin("Loading the gallery", { onCancel: () => {} });
  try {
    const page = await browse.open(whereOf(now.filters), work.signal);
    if (state.view !== "gallery" || state.filters !== now.filters) return;
    byId("title").textContent = "Gallery";
    byId("subtitle").textContent = page.total ? `${counted(page.total, "picture")}${Object.keys(now.filters).length ? " pass the filter" : ""}. Take one as the reference.` : "";
    hideEmpty();
    grid.show({ count: browse.count, get: (place) => browse.get(place), want: browse.want }, { below: below("gallery") });
    if (!page.total && page.gallery.images) nothingPasses("No picture passes the filter");
    else if (!page.total) {
      showEmpty("This gallery is empty.", make("p", {}, "Fill it with ", make("code", {}, "triptych index MODEL PICTURES -o GALLERY"), ", then load this page again."));
    }
    say(`${counted(page.total, "picture")} in the gallery.`);
  } catch (problem) {
    if (problem.name === "AbortError") return;
    nothingShown("Gallery");
    showProblem(problem, () => show());
  } finally {
    work.end();
  }
}

const below = (view) => BELOW[view] + (gallery && !gallery.columns.length ? 0 : BELOW.facts);

/** After a search is cancelled the step is not taken: the page is as it was before. */
function undoAfterCancel() {
  if (depth > 0) history.back();
}

function nothingShown(title) {
  byId("title").textContent = title;
  byId("subtitle").textContent = "";
  hideEmpty();
  grid.show({ count: 0, get: () => undefined, want: () => {} }, { below: 0 });
}

function nothingPasses(title) {
  const filtered = Object.keys(state.filters).length > 0;
  const clear = make("button", { type: "button", on: { click: () => go({ ...state, filters: {} }) } }, "Remove the filter");
  showEmpty(`${title}.`, ...(filtered ? [clear] : []));
}

/** Take a picture as the next reference; what is shown stays until the change is said. */
function take(image) {
  go(taken(state, { id: image.id }), { load: false });
  afterTaking(image.id);
}

function add(image) {
  go(taken(state, { id: image.id }, { add: true }), { load: false });
  say(`${image.id} is one more reference.`);
}

function bring(images) {
  const [first, ...others] = images;
  let next = taken({ ...state, view: state.turns.length ? state.view : "gallery" }, first);
  for (const image of others.slice(0, MAX_PICTURES - 1)) next = taken(next, image, { add: true });
  go({ ...next, view: state.view }, { load: false });
  afterTaking(first.name);
}

function afterTaking(name) {
  say(`${name} is the reference. Say what should change.`);
  if (matchMedia("(max-width: 56rem)").matches) scrollTo({ top: 0 });
  byId("text").focus({ preventScroll: true });
}

function scrollToFound() {
  const top = byId("found").getBoundingClientRect().top;
  if (top < 0 || top > innerHeight * 0.6) scrollBy({ top: top - 8 });
}

function closeAttention() {
  byId("attention").hidden = true;
  byId("mattered").setAttribute("aria-expanded", "false");
}

async function toggleAttention() {
  if (!byId("attention").hidden) { closeAttention(); return; }
  const now = state;
  const turn = now.turns.at(-1);
  const work = begin("Looking where the model looked", { onCancel: () => {} });
  try {
    const answer = await askAttention(queryOf({ ...now, turns: [turn] }, ""), work.signal);
    if (state.turns !== now.turns) return;
    byId("attention").replaceChildren(...panel(turn.images[0], answer));
    byId("attention").hidden = false;
    byId("mattered").setAttribute("aria-expanded", "true");
    say(byId("attention").querySelector("p").textContent);
  } catch (problem) {
    if (problem.name !== "AbortError") showProblem(problem, null);
  } finally {
    work.end();
  }
}

function connect() {
  byId("mattered").addEventListener("click", toggleAttention);
  byId("browse").addEventListener("click", () => go({ ...state, view: "gallery", draft: emptyTurn(), at: state.turns.length }));
  byId("back").addEventListener("click", () => history.back());
  byId("filter").addEventListener("click", () => {
    const open = byId("filters").hidden;
    byId("filters").hidden = !open;
    byId("filter").setAttribute("aria-expanded", String(open));
  });
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault(); // an address of its own would be another state
    byId("found").focus();
  });
  addEventListener("popstate", (event) => {
    const next = event.state?.state ?? fromAddress(location.hash);
    if (!next && location.hash.length > 1) return; // not an address of ours
    depth = event.state?.depth ?? 0;
    state = next ?? initial();
    show();
  });
  addEventListener("keydown", (event) => {
    const typing = event.target.closest?.("input, textarea, select");
    if (event.key === "Escape" && cancel()) event.preventDefault();
    if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey) { event.preventDefault(); byId("text").focus(); }
  });
}

async function start() {
  connect();
  depth = history.state?.depth ?? 0;
  state = history.state?.state ?? fromAddress(location.hash) ?? initial();
  if (lost([...state.turns, state.draft]) && saysNothing({ ...state.draft, images: [] }) && !state.turns.length) state = initial();
  show();
  try {
    gallery = await askGallery();
  } catch (problem) {
    showProblem(problem, () => location.reload());
    return;
  }
  composer.limits = gallery.limits;
  byId("about").textContent = `${counted(gallery.gallery.images, "picture")} · model ${gallery.model.name}${gallery.writable ? "" : " · read only"}`;
  filters = new Filters(gallery.columns, (chosen) => go({ ...state, filters: structuredClone(chosen) }));
  show({ load: false });
}

start();
