// Right or wrong: what the user says of a result becomes a training triplet.

import { icon, make } from "./dom.js";
import { sendFeedback } from "./api.js";
import { say, showProblem } from "./status.js";

const UP = "M7 11v9H4v-9zM7 11l4-8c1.6 0 2.6 1.2 2.3 2.8L12.6 9H18a2 2 0 0 1 2 2.4l-1.3 7A2 2 0 0 1 16.7 20H7";

const given = new Map(); // reference, text and target -> right or wrong

/** Say why this server takes no feedback at all, or null where it does. */
export const refusalAlways = (gallery) => (gallery?.feedback_refused ? `Feedback is not taken: ${gallery.feedback_refused}.` : null);

/** Say why a step's results cannot be judged, or null where they can. */
export function refusal(turn, gallery) {
  if (refusalAlways(gallery)) return refusalAlways(gallery);
  if (turn.images.length !== 1 || !turn.text.trim()) return "Right and wrong can be said of results of one reference picture and a text.";
  if (turn.images[0].id === undefined) return "Right and wrong can be said where the reference is a picture of the gallery; yours is not in it.";
  return null;
}

/** Make the two buttons of a result. */
export function judging(turn, hit) {
  const choice = { reference: turn.images[0].id, text: turn.text.trim(), target: hit.id };
  const key = JSON.stringify(choice);
  const buttons = [true, false].map((right) => make("button", {
    type: "button", class: `icon judge ${right ? "up" : "down"}`, title: right ? "Right" : "Wrong",
    "aria-label": `${hit.id} is ${right ? "right" : "wrong"}`, "aria-pressed": String(given.get(key) === right),
    disabled: given.has(key), on: { click: () => judge(right) },
  }, icon(UP)));
  async function judge(right) {
    buttons.forEach((button) => { button.disabled = true; });
    try {
      await sendFeedback({ ...choice, right });
      given.set(key, right);
      buttons[right ? 0 : 1].setAttribute("aria-pressed", "true");
      say(`Noted: ${hit.id} is ${right ? "right" : "wrong"}.`);
    } catch (problem) {
      buttons.forEach((button) => { button.disabled = false; });
      showProblem(problem, () => judge(right));
    }
  }
  return buttons;
}
