// Elements without markup in strings: whatever a server or a user says stays text.

export const byId = (id) => document.getElementById(id);

/** Make an element; properties are set as they are, `aria-…` and `data-…` as attributes, `on` holds listeners. */
export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null) continue;
    if (name === "on") for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    else if (name.includes("-") || name === "role" || name === "for") element.setAttribute(name, value);
    else if (name === "class") element.className = value;
    else element[name] = value;
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** Draw a small icon of one path, 24 units wide. */
export function icon(path) {
  const [svg, line] = ["svg", "path"].map((tag) => document.createElementNS("http://www.w3.org/2000/svg", tag));
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("aria-hidden", "true");
  line.setAttribute("d", path);
  svg.append(line);
  return svg;
}

/** Call a function once things have been quiet for some milliseconds. */
export function settled(work, milliseconds) {
  let timer = 0;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => work(...given), milliseconds);
  };
}

const whole = new Intl.NumberFormat();
export const counted = (number, one, many = `${one}s`) => `${whole.format(number)} ${number === 1 ? one : many}`;

/** Say a value of metadata. */
export function shown(value) {
  if (value === true) return "yes";
  if (value === false) return "no";
  return typeof value === "number" ? String(Math.round(value * 1000) / 1000) : String(value);
}
