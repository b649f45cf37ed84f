// What is going on: said aloud, shown while it lasts, and never a blank where something failed.

import { byId, make } from "./dom.js";

const SHOWN_AFTER = 300;
const LONG_AFTER = 4000;

/** Say something to screen readers. */
export function say(text) {
  byId("status").textContent = "";
  requestAnimationFrame(() => { byId("status").textContent = text; });
}

let running = null;

/** Begin something that can be cancelled; returns its signal and its end. What ran before is cancelled. */
export function begin(text, { onCancel }) {
  running?.abort();
  const controller = new AbortController();
  running = controller;
  const bar = byId("progress");
  const timers = [
    setTimeout(() => {
      byId("progress-text").textContent = `${text} …`;
      bar.hidden = false;
      byId("grid").setAttribute("aria-busy", "true");
      byId("found").classList.add("busy");
    }, SHOWN_AFTER),
    setTimeout(() => {
      byId("progress-text").textContent = `${text} … The server takes long; it may be busy.`;
      say(`${text}. The server takes long.`);
    }, LONG_AFTER),
  ];
  const end = () => {
    timers.forEach(clearTimeout);
    if (running !== controller) return;
    running = null;
    bar.hidden = true;
    byId("grid").removeAttribute("aria-busy");
    byId("found").classList.remove("busy");
  };
  byId("cancel").onclick = () => {
    controller.abort();
    end();
    say("Cancelled.");
    onCancel();
  };
  return { signal: controller.signal, end };
}

/** Cancel what runs, as the button does; false where nothing does. */
export function cancel() {
  if (!running) return false;
  byId("cancel").click();
  return true;
}

/** Show a problem in the server's words, and offer to try again. */
export function showProblem(problem, again) {
  const box = byId("problem");
  const what = make("p", {}, make("strong", {}, problem.message));
  const parts = [what];
  if (problem.mend) parts.push(make("p", {}, problem.mend));
  const buttons = make("div", { class: "buttons" });
  if (again) buttons.append(make("button", { type: "button", class: "small", on: { click: () => { hideProblem(); again(); } } }, "Try again"));
  if (byId("grid").childElementCount) { // else the page would be blank without it
    buttons.append(make("button", { type: "button", class: "small", on: { click: hideProblem } }, "Dismiss"));
  }
  box.replaceChildren(...parts, buttons);
  box.hidden = false;
}

export function hideProblem() {
  byId("problem").hidden = true;
  byId("problem").replaceChildren();
}

/** Show what to do where there is nothing to show. */
export function showEmpty(title, ...rest) {
  byId("empty").replaceChildren(make("p", {}, make("strong", {}, title)), ...rest);
  byId("empty").hidden = false;
}

export const hideEmpty = () => { byId("empty").hidden = true; };
