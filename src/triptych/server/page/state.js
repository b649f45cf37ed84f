// What is asked: the steps so far, the step that is being written, filters and weights; in the address where it fits.

import { fileOf, isLost } from "./pictures.js";

export const MAX_PICTURES = 4;
const MAX_STEPS = 16;
const MAX_ADDRESS = 6000;

export const DEFAULTS = Object.freeze({ minus_weight: 0.5, carry: 0.3, top: 24 });

export const emptyTurn = () => ({ images: [], text: "", minus: "" });

/** `turns` were answered, `draft` will be step number `at`; `view` is "gallery" or "results". */
export const initial = () => ({ turns: [], draft: emptyTurn(), at: 0, view: "gallery", filters: {}, settings: { ...DEFAULTS } });

export const saysNothing = (turn) => !turn.images.length && !turn.text.trim();
export const lost = (turns) => turns.some((turn) => turn.images.some(isLost));

/** The state after the draft is asked: it becomes the last step. */
export function asked(state) {
  const turns = [...state.turns.slice(0, state.at), structuredClone(state.draft)].slice(-MAX_STEPS);
  return { ...state, turns, at: turns.length - 1, view: "results" };
}

/** The state after a picture is taken as the next reference. */
export function taken(state, image, { add = false } = {}) {
  const fresh = { ...image, weight: 1 };
  if (add) {
    const others = state.draft.images.filter((one) => one.id !== image.id || image.id === undefined);
    return { ...state, draft: { ...state.draft, images: [...others, fresh].slice(-MAX_PICTURES) } };
  }
  if (state.view === "gallery") return { ...state, turns: [], at: 0, draft: { ...state.draft, images: [fresh] } };
  return { ...state, at: state.turns.length, draft: { ...emptyTurn(), images: [fresh] } };
}

/** The query of answered steps for the server, and the files that it names. */
export function queryOf(state, where) {
  const files = [];
  const image = (one) => {
    if (one.id !== undefined) return { id: one.id, weight: one.weight };
    files.push(fileOf(one));
    return { upload: files.length - 1, weight: one.weight };
  };
  const texts = (text) => (text.trim() ? [{ text: text.trim() }] : []);
  const turn = (one) => ({ images: one.images.map(image), texts: texts(one.text), minus: texts(one.minus) });
  const turns = state.turns.map(turn);
  const query = { ...turns.at(-1), before: turns.slice(0, -1), ...state.settings, where: where || null };
  return { query, files };
}

/** Write a state into an address, unless it holds files, which an address cannot. */
export function toAddress(state) {
  const turns = [...state.turns, state.draft];
  if (turns.some((turn) => turn.images.some((image) => image.file !== undefined))) return "#";
  const same = JSON.stringify(state) === JSON.stringify(initial());
  const text = same ? "" : encodeURIComponent(JSON.stringify(state));
  return text.length > MAX_ADDRESS ? "#" : `#${text}`;
}

/** Read a state from an address that anybody may have written; null where it holds none. */
export function fromAddress(hash) {
  try {
    const given = JSON.parse(decodeURIComponent(hash.slice(1)));
    const state = initial();
    const string = (value) => (typeof value === "string" ? value.slice(0, 2000) : "");
    const weight = (value) => Math.min(3, Math.max(0.1, Number(value) || 1));
    const images = (list) => (Array.isArray(list) ? list : []).slice(0, MAX_PICTURES)
      .filter((one) => typeof one?.id === "string" && one.id).map((one) => ({ id: one.id, weight: weight(one.weight) }));
    const turn = (one) => ({ images: images(one?.images), text: string(one?.text), minus: string(one?.minus) });
    state.turns = (Array.isArray(given.turns) ? given.turns : []).slice(0, MAX_STEPS).map(turn).filter((one) => !saysNothing(one));
    state.draft = turn(given.draft);
    state.at = Math.min(Math.max(0, Number(given.at) || 0), state.turns.length);
    state.view = given.view === "results" && state.turns.length ? "results" : "gallery";
    if (given.filters && typeof given.filters === "object" && !Array.isArray(given.filters)) state.filters = given.filters;
    for (const name of Object.keys(DEFAULTS)) {
      const value = given.settings?.[name];
      if (typeof value === "number" && Number.isFinite(value)) state.settings[name] = value;
    }
    return state;
  } catch {
    return null;
  }
}
