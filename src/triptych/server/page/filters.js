// Filters made of what the metadata columns hold, written in the server's filter language.

import { byId, make, settled, shown } from "./dom.js";

const FEW = 12;
const SHORT = 30;

const name = (column) => `"${column}"`;
const text = (value) => `'${value.replaceAll("'", "''")}'`;

/** The tests of one column's filter. */
function tests(column, filter) {
  if (!filter || typeof filter !== "object") return [];
  const found = [];
  if (Array.isArray(filter.in) && filter.in.length) found.push(`${name(column)} IN (${filter.in.map((value) => text(String(value))).join(", ")})`);
  if (filter.like) found.push(`${name(column)} LIKE ${text(`%${filter.like}%`)}`);
  if (Number.isFinite(filter.min)) found.push(`${name(column)} >= ${filter.min}`);
  if (Number.isFinite(filter.max)) found.push(`${name(column)} <= ${filter.max}`);
  if (typeof filter.is === "boolean") found.push(`${name(column)} = ${filter.is ? "TRUE" : "FALSE"}`);
  return found;
}

/** Write filters as the server reads them; empty where there are none. */
export const whereOf = (filters) => Object.entries(filters).flatMap(([column, filter]) => tests(column, filter)).join(" AND ");

/** Say a column's filter in words. */
function inWords(column, filter) {
  const parts = [];
  if (filter.in?.length) parts.push(`${column}: ${filter.in.join(" or ")}`);
  if (filter.like) parts.push(`${column} contains “${filter.like}”`);
  if (Number.isFinite(filter.min) || Number.isFinite(filter.max)) {
    const [low, high] = [filter.min, filter.max];
    parts.push(Number.isFinite(low) ? (Number.isFinite(high) ? `${column} ${low} to ${high}` : `${column} from ${low}`) : `${column} up to ${high}`);
  }
  if (typeof filter.is === "boolean") parts.push(`${column}: ${shown(filter.is)}`);
  return parts.join(", ");
}

/** The panel of filters; `onChange(filters)` is called when they settle. */
export class Filters {
  constructor(columns, onChange) {
    this.columns = columns;
    this.onChange = onChange;
    this.later = settled(() => onChange(this.filters), 350);
  }

  show(filters) {
    this.filters = structuredClone(filters);
    byId("filter").hidden = !this.columns.length && !Object.keys(filters).length;
    const used = Object.entries(this.filters).filter(([column, filter]) => tests(column, filter).length);
    byId("filter").textContent = used.length ? `Filter (${used.length})` : "Filter";
    const chips = used.map(([column, filter]) => make("li", {}, make("button", {
      type: "button", class: "chip", "aria-label": `Remove the filter ${inWords(column, filter)}`,
      on: { click: () => { delete this.filters[column]; this.onChange(this.filters); byId("filter").focus(); } },
    }, inWords(column, filter), make("span", { "aria-hidden": "true" }, " ×"))));
    byId("chips").replaceChildren(...chips);
    byId("chips").hidden = !chips.length;
    if (!byId("filters").contains(document.activeElement)) byId("filters").replaceChildren(...this.columns.map((column) => this.field(column)));
  }

  set(column, changes) {
    const filter = { ...this.filters[column], ...changes };
    for (const [key, value] of Object.entries(filter)) {
      if (value === undefined || value === "" || Number.isNaN(value) || (Array.isArray(value) && !value.length)) delete filter[key];
    }
    if (Object.keys(filter).length) this.filters[column] = filter;
    else delete this.filters[column];
    this.later();
  }

  field(column) {
    const filter = this.filters[column.name] ?? {};
    const legend = make("legend", {}, column.name);
    if (column.kind === "number") {
      if (column.low === null) return make("fieldset", {}, legend, make("p", { class: "quiet" }, "no values"));
      const box = (side, word, bound) => make("label", {}, make("span", {}, word), make("input", {
        type: "number", step: "any", placeholder: shown(bound), value: filter[side] ?? "",
        "aria-label": `${column.name} ${word}`, on: { input: (event) => this.set(column.name, { [side]: event.target.valueAsNumber }) },
      }));
      return make("fieldset", { class: "range" }, legend, box("min", "from", column.low), box("max", "to", column.high));
    }
    if (column.kind === "truth value") {
      const select = make("select", { "aria-label": column.name, on: { change: (event) => this.set(column.name, { is: { yes: true, no: false }[event.target.value] }) } },
        ...["any", "yes", "no"].map((word) => make("option", { selected: shown(filter.is ?? "any") === word }, word)));
      return make("fieldset", {}, legend, select);
    }
    if (column.distinct > column.values.length || column.distinct > FEW) {
      const like = make("input", { type: "search", placeholder: "contains …", value: filter.like ?? "", maxLength: 200, "aria-label": `${column.name} contains`,
        on: { input: (event) => this.set(column.name, { like: event.target.value.trim() }) } });
      const common = column.values.filter((one) => one.images > 1 && one.value.length <= SHORT).slice(0, FEW);
      return make("fieldset", {}, legend, like, ...(common.length ? [this.boxes(column.name, common, filter)] : []));
    }
    return make("fieldset", {}, legend, this.boxes(column.name, column.values, filter));
  }

  boxes(column, values, filter) {
    return make("div", { class: "boxes" }, ...values.map(({ value, images }) => make("label", {}, make("input", {
      type: "checkbox", checked: filter.in?.includes(value) ?? false,
      on: { change: (event) => {
        const others = (this.filters[column]?.in ?? []).filter((other) => other !== value);
        this.set(column, { in: event.target.checked ? [...others, value] : others });
      } },
    }), make("span", {}, value, make("small", {}, ` ${images}`)))));
  }
}
