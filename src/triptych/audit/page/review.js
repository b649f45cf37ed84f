"use strict";
// The page for review. Only the suspects of the page that is shown are in the document.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const CORNERS = ["reference", "text", "target"];
  const CHOICES = { keep: "k", drop: "d", fix: "f", skip: "s" };
  const NAMES = { keep: "Keep", drop: "Drop", fix: "Accept fix", skip: "Skip" };
  const KEY = "triptych-audit-" + data.fingerprint;
  const suspects = data.suspects;
  let decisions = load();
  let chosen = {}; // triplet id -> number of the proposal that is selected
  let shown = [];
  let page = 0;
  let current = 0;

  function load() {
    try { return JSON.parse(localStorage.getItem(KEY)) || {}; } catch { return {}; }
  }

  function save() {
    try {
      localStorage.setItem(KEY, JSON.stringify(decisions));
    } catch {
      say("This browser keeps nothing for this page: export the decisions before you leave.");
    }
  }

  function element(name, attributes = {}, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) {
      if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
      else if (value !== null && value !== undefined) made.setAttribute(key, value);
    }
    made.append(...children.filter((child) => child !== null));
    return made;
  }

  const byId = (id) => document.getElementById(id);
  const say = (text) => { byId("status").textContent = text; };

  function picture(id) {
    const uri = data.pictures[id];
    if (uri) return element("img", { src: uri, alt: id, loading: "lazy" });
    return element("span", { class: "none", role: "img", "aria-label": id }, data.unreadable[id] ? "cannot be read" : "no picture here");
  }

  function proposals(suspect) {
    const corner = suspect.corner || "target";
    const order = [corner, ...CORNERS.filter((other) => other !== corner)];
    return order.flatMap((field) => (suspect.better[field] || []).map((value) => ({ field, value })));
  }

  function filter() {
    const kind = byId("kind").value, category = byId("category").value, state = byId("state").value;
    const worst = Number(byId("score").value), sort = byId("sort").value;
    shown = suspects.filter((suspect) =>
      (!kind || suspect.corner === kind || suspect.rules.includes(kind)) &&
      (!category || suspect.category === category) &&
      suspect.score <= worst &&
      (!state || (decisions[suspect.id] ? decisions[suspect.id].decision : "open") === state));
    const orders = {
      score: (a, b) => a.score - b.score,
      doubt: (a, b) => Math.abs(a.score - 0.5) - Math.abs(b.score - 0.5),
      category: (a, b) => a.category.localeCompare(b.category) || a.score - b.score,
      id: (a, b) => a.place - b.place,
    };
    shown.sort(orders[sort]);
    page = 0;
    current = 0;
    draw();
  }

  const size = () => Number(byId("size").value);
  const pages = () => Math.max(1, Math.ceil(shown.length / size()));

  function draw() {
    page = Math.min(page, pages() - 1);
    const part = shown.slice(page * size(), (page + 1) * size());
    current = Math.max(0, Math.min(current, part.length - 1));
    byId("list").replaceChildren(...part.map(card));
    byId("where").textContent = shown.length
      ? `${page * size() + 1} to ${page * size() + part.length} of ${shown.length}`
      : "none match";
    byId("previous").disabled = page === 0;
    byId("next").disabled = page >= pages() - 1;
    count();
    mark();
  }

  function count() {
    const made = Object.values(decisions).filter((each) => each.decision !== "skip").length;
    byId("decided").textContent = `${made} decided`;
  }

  function card(suspect, at) {
    const options = proposals(suspect);
    const decision = decisions[suspect.id];
    const said = suspect.reasons.length ? suspect.reasons.join("; ") : `${suspect.corner || "something"} probably wrong`;
    const wrong = (corner) => (suspect.corner === corner ? "wrong" : null);
    const chances = CORNERS.map((corner, i) => `${corner} ${Math.round(100 * suspect.corners[i])} %`).join(", ");
    const made = element(
      "article",
      { class: "suspect", "data-id": suspect.id, "data-decision": decision ? decision.decision : "", tabindex: "-1", onclick: () => { current = at; mark(); } },
      element("header", {},
        element("b", {}, suspect.id),
        element("span", {}, suspect.category),
        element("span", { title: "chance to be right" }, `score ${suspect.score.toFixed(3)}`),
        element("span", {}, said),
        element("span", { class: "muted" }, `wrong with: ${chances}`)),
      element("div", { class: "triplet" },
        element("figure", { class: wrong("reference") }, picture(suspect.reference), element("figcaption", {}, "reference ", element("code", {}, suspect.reference))),
        element("blockquote", { class: wrong("text") }, ...suspect.captions.map((caption) => element("p", {}, caption))),
        element("figure", { class: wrong("target") }, suspect.target === null ? picture("") : picture(suspect.target), element("figcaption", {}, "target ", element("code", {}, suspect.target || "none")))),
      element("div", { class: "proposals" },
        options.length ? element("h3", {}, "Proposed instead") : element("h3", {}, "No proposal"),
        ...options.map((option, number) => proposal(suspect, option, number))),
      element("div", { class: "choices", role: "group", "aria-label": "decision" },
        ...Object.entries(CHOICES).map(([choice, key]) =>
          element("button", {
            type: "button", "data-choice": choice,
            "aria-pressed": String(Boolean(decision) && decision.decision === choice),
            disabled: choice === "fix" && !options.length ? "" : null,
            onclick: () => { current = at; decide(suspect, choice, false); },
          }, `${NAMES[choice]} `, element("kbd", {}, key)))));
    return made;
  }

  function selected(suspect) {
    const decision = decisions[suspect.id];
    if (suspect.id in chosen) return chosen[suspect.id];
    if (decision && decision.fix) {
      const found = proposals(suspect).findIndex((option) => JSON.stringify(option) === JSON.stringify(decision.fix));
      if (found >= 0) return found;
    }
    return 0;
  }

  function proposal(suspect, option, number) {
    const text = option.field === "text";
    const content = text ? option.value.join(" / ") : picture(option.value);
    return element("button", {
      type: "button", class: "proposal", "aria-pressed": String(selected(suspect) === number),
      title: `another ${option.field}: ${text ? content : option.value}`,
      onclick: () => {
        chosen[suspect.id] = number;
        if (decisions[suspect.id] && decisions[suspect.id].decision === "fix") decide(suspect, "fix", false);
        else draw();
      },
    }, content, element("small", {}, text ? "text" : `${option.field} ${option.value}`));
  }

  function decide(suspect, choice, onward) {
    const options = proposals(suspect);
    if (choice === "fix" && !options.length) { say("There is no proposal for this one."); return; }
    decisions[suspect.id] = choice === "fix"
      ? { decision: "fix", fix: options[selected(suspect)] }
      : { decision: choice };
    save();
    say(`${suspect.id}: ${NAMES[choice]}`);
    if (onward) move(1); else draw();
  }

  function undo(suspect) {
    delete decisions[suspect.id];
    save();
    say(`${suspect.id}: open again`);
    draw();
  }

  function move(step) {
    const last = Math.min(size(), shown.length - page * size()) - 1;
    if (current + step > last && page < pages() - 1) { page += 1; current = 0; draw(); return; }
    if (current + step < 0 && page > 0) { page -= 1; current = size() - 1; draw(); return; }
    current = Math.max(0, Math.min(last, current + step));
    draw();
  }

  function mark() {
    const cards = byId("list").children;
    for (let i = 0; i < cards.length; i += 1) cards[i].classList.toggle("current", i === current);
    if (cards[current]) cards[current].scrollIntoView({ block: "nearest" });
  }

  function exported() {
    return JSON.stringify({ format: data.decisions_format, fingerprint: data.fingerprint, decisions }, null, 1) + "\n";
  }

  function download() {
    const link = element("a", { download: "decisions.json", href: URL.createObjectURL(new Blob([exported()], { type: "application/json" })) });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
    say("decisions.json was saved where this browser saves files.");
  }

  async function restore(file) {
    try {
      const read = JSON.parse(await file.text());
      if (read.format !== data.decisions_format) throw new Error("it holds no decisions");
      const known = new Set(suspects.map((suspect) => suspect.id));
      const kept = Object.entries(read.decisions).filter(([id]) => known.has(id));
      decisions = { ...decisions, ...Object.fromEntries(kept) };
      save();
      draw();
      say(`${kept.length} decisions were read.`);
    } catch (error) {
      say(`This file cannot be read: ${error.message}`);
    }
  }

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || ["SELECT", "INPUT"].includes(event.target.tagName)) return;
    const suspect = shown[page * size() + current];
    const choice = Object.keys(CHOICES).find((name) => CHOICES[name] === event.key);
    if (choice && suspect) decide(suspect, choice, true);
    else if (event.key === "ArrowDown" || event.key === "j") move(1);
    else if (event.key === "ArrowUp" || event.key === "i") move(-1);
    else if (event.key === "ArrowRight") { if (page < pages() - 1) { page += 1; current = 0; draw(); } }
    else if (event.key === "ArrowLeft") { if (page > 0) { page -= 1; current = 0; draw(); } }
    else if (event.key === "u" && suspect) undo(suspect);
    else if (event.key === "e") download();
    else if (/^[1-9]$/.test(event.key) && suspect && Number(event.key) <= proposals(suspect).length) {
      chosen[suspect.id] = Number(event.key) - 1;
      draw();
    } else return;
    event.preventDefault();
  });

  for (const name of ["kind", "category", "state", "score", "sort", "size"]) byId(name).addEventListener("change", filter);
  byId("previous").addEventListener("click", () => { page -= 1; current = 0; draw(); });
  byId("next").addEventListener("click", () => { page += 1; current = 0; draw(); });
  byId("export").addEventListener("click", download);
  byId("import").addEventListener("change", (event) => { if (event.target.files[0]) restore(event.target.files[0]); });
  byId("review").hidden = false;
  window.triptychExported = exported;
  filter();
})();
