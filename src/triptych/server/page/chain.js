// The steps of a search: each a picture and what was said; a step can be gone back to.

import { byId, make } from "./dom.js";
import { draw, nameOf } from "./pictures.js";

/** Show the steps; `onStep(number)` is called with the step to go back to. */
export function showChain(state, onStep) {
  byId("chain").hidden = !state.turns.length;
  const shownStep = state.view === "results" ? state.turns.length - 1 : -1;
  const steps = state.turns.map((turn, number) => {
    const words = turn.text.trim() || (turn.minus.trim() ? "" : "similar pictures");
    const minus = turn.minus.trim() ? `not ${turn.minus.trim()}` : "";
    const pictures = turn.images.map((image) => draw(image, { alt: "" }));
    const names = turn.images.map(nameOf).join(" and ");
    const text = [words, minus].filter(Boolean).join(", ");
    return make("li", {}, make("button", {
      type: "button", class: "step", "aria-current": number === shownStep ? "step" : null,
      "aria-label": `Step ${number + 1}: ${names ? `${names}, ` : ""}${text}`,
      on: { click: () => onStep(number) },
    }, make("span", { class: "thumbs" }, ...pictures), make("span", { class: "words" }, text)));
  });
  byId("steps").replaceChildren(...steps);
}
