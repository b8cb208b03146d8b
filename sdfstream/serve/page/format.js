// Figures as people read them; what is not known is an em dash with its reason left to the caller.
const NONE = '–';

export function time(ns) {
  return ns ? new Date(ns / 1e6).toISOString().replace('T', ' ').replace(/\.\d+Z$/, 'Z') : NONE;
}

export function clockTime(ns) {
  return ns ? time(ns).slice(11) : NONE;
}

export function duration(ns) {
  if (ns === null || ns === undefined || !Number.isFinite(ns)) return NONE;
  const size = Math.abs(ns);
  for (const [unit, scale] of [['d', 86400e9], ['h', 3600e9], ['min', 60e9], ['s', 1e9], ['ms', 1e6], ['µs', 1e3]]) {
    if (size >= scale) return `${short(ns / scale)} ${unit}`;
  }
  return `${short(ns)} ns`;
}

export function bits(bps) {
  if (bps === null || bps === undefined) return NONE;
  for (const [unit, scale] of [['Tbit/s', 1e12], ['Gbit/s', 1e9], ['Mbit/s', 1e6], ['kbit/s', 1e3]]) {
    if (bps >= scale) return `${short(bps / scale)} ${unit}`;
  }
  return `${short(bps)} bit/s`;
}

export function share(value) {
  return value === null || value === undefined ? NONE : `${short(value * 100)} %`;
}

export function short(value) {
  if (value === null || value === undefined) return NONE;
  const size = Math.abs(value);
  return value.toFixed(size >= 100 || Number.isInteger(value) ? 0 : size >= 10 ? 1 : 2);
}

// Order of people: r2 before r10.
export const natural = new Intl.Collator('en', { numeric: true }).compare;
