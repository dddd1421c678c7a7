/** The state of the page, which is stored in the address so that views can be shared. */

import { clamped } from "./grid.js";

/** Starts at a held-out combination, if there is one. @param {PageData} data @returns {State} */
export function initialState(data) {
  return {
    at: [...data.start],
    decoder: 0,
    beside: data.models.length > 1 ? 1 : -1,
    plane: [0, Math.min(1, data.factors.length - 1)],
    stage: 0,
    unit: -1,
    snap: true,
    section: "",
    tour: 0,
  };
}

/** The part of the address after #; the section of the page comes first. @param {State} state @returns {string} */
export function written({ at, decoder, beside, plane, stage, unit, snap, section, tour }) {
  const numbers = at.map((position) => Math.round(position * 1000) / 1000);
  const explorer = `at=${numbers}&decoder=${decoder}&beside=${beside}&plane=${plane}&stage=${stage}&unit=${unit}`;
  return `${section ? `section=${section}&` : ""}${explorer}&snap=${+snap}${tour ? `&tour=${tour}` : ""}`;
}

/**
 * Returns the section in an address, which is all of it after a click on a link within the page.
 * @param {string} text @returns {string}
 */
function sectionOf(text) {
  const section = text.includes("=") ? (new URLSearchParams(text).get("section") ?? "") : text;
  return /^[\w-]*$/.test(section) ? section : "";
}

/**
 * Returns the state stored in an address; missing or invalid fields are taken from `state`.
 * @param {string} text @param {State} state @param {PageData} data @returns {State}
 */
export function parsed(text, state, { factors, models }) {
  text = text.replace(/^#/, "");
  const given = new URLSearchParams(text);
  const list = (/** @type {string} */ name) => (given.get(name) ?? "").split(",").map((part) => parseFloat(part));
  const integer = (/** @type {string} */ name, /** @type {number} */ low, /** @type {number} */ end) => {
    const number = Number(given.get(name) ?? NaN);
    return Number.isInteger(number) && number >= low && number < end ? number : null;
  };
  const at = list("at");
  const plane = list("plane");
  const inside = plane.length === 2 && plane.every((k) => Number.isInteger(k) && k >= 0 && k < factors.length);
  const apart = plane[0] !== plane[1] || factors.length === 1;
  return {
    at: at.length === factors.length && at.every(Number.isFinite)
      ? at.map((position, k) => clamped(factors[k], position))
      : state.at,
    decoder: integer("decoder", 0, models.length) ?? state.decoder,
    beside: integer("beside", -1, models.length) ?? state.beside,
    plane: inside && apart ? [plane[0], plane[1]] : state.plane,
    stage: integer("stage", 0, 1000) ?? state.stage,
    unit: integer("unit", -1, 2 ** 31) ?? state.unit,
    snap: given.has("snap") ? given.get("snap") !== "0" : state.snap,
    section: sectionOf(text),
    tour: integer("tour", 0, 100) ?? (text.includes("=") ? 0 : state.tour),
  };
}
