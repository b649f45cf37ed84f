// The server, asked: answers as they are, refusals as a Problem that carries the server's own words.

export class Problem extends Error {
  constructor(message, mend, { status = 0, retry = null } = {}) {
    super(message);
    this.mend = mend;
    this.status = status;
    this.retry = retry; // seconds
  }
}

export const thumbnail = (id) => `v1/images/${encodeURIComponent(id)}`;

async function call(path, options = {}) {
  let response;
  try {
    response = await fetch(path, { ...options, headers: { accept: "application/json", ...options.headers } });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem("The server does not answer.", "Is it still running, and is the network there?");
  }
  let body = null;
  try {
    body = await response.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
  }
  if (response.ok && body !== null) return body;
  const retry = Number(response.headers.get("retry-after")) || null;
  const message = body?.message || `The server answered ${response.status} and gave no reason.`;
  throw new Problem(message, body?.mend, { status: response.status, retry });
}

export const askGallery = () => call("v1/gallery");

export function askImages({ skip, limit, where }, signal) {
  const query = new URLSearchParams({ skip, limit });
  if (where) query.set("where", where);
  return call(`v1/images?${query}`, { signal });
}

/** Post a query; with files as a form, the query's `upload` numbers counting them. */
function post(path, { query, files }, signal) {
  if (!files.length) {
    return call(path, { method: "POST", signal, body: JSON.stringify(query), headers: { "content-type": "application/json" } });
  }
  const form = new FormData();
  form.append("query", JSON.stringify(query));
  for (const file of files) form.append("image", file, file.name);
  return call(path, { method: "POST", signal, body: form });
}

export const askSearch = (asked, signal) => post("v1/search", asked, signal);
export const askAttention = (asked, signal) => post("v1/attention", asked, signal);

export function sendFeedback({ reference, text, target, right }) {
  const body = JSON.stringify({ reference, text, target, right });
  return call("v1/feedback", { method: "POST", body, headers: { "content-type": "application/json" } });
}
