// The instant that every view speaks of: now, or any of the past that the archive has.
import { html, useEffect, useRef, useState } from './lib.js';
import { busNow } from './freshness.js';
import { duration } from './format.js';

const SETTLE_MS = 350;
const SPANS = { 300: '5 min', 3600: '1 h', 86400: '24 h', 604800: '7 d' };

export function Slider({ at, set }) {
  const [span, setSpan] = useState(3600);
  const [shown, setShown] = useState(null); // while the knob is moved
  const [end, setEnd] = useState(busNow); // stands still while the past is shown, so that the knob does
  useEffect(() => {
    if (at) return undefined;
    const timer = setInterval(() => setEnd(busNow()), 1000);
    return () => clearInterval(timer);
  }, [at]);
  const chosen = at ? Date.parse(at) : null;
  const backS = shown ?? (chosen ? Math.min(span, Math.max(0, Math.round((end - chosen) / 1000))) : 0);
  const settling = useRef(0);
  const choose = (seconds) => { // each instant is a look into the archive: only where the knob comes to rest
    setShown(seconds);
    clearTimeout(settling.current);
    settling.current = setTimeout(() => {
      setShown(null);
      set(seconds > 0 ? iso(end - seconds * 1000) : undefined);
    }, SETTLE_MS);
  };
  const typed = (event) => {
    const ms = Date.parse(`${event.target.value}Z`);
    if (Number.isFinite(ms) && ms < busNow()) set(iso(ms));
  };
  const words = backS ? `${duration(backS * 1e9)} ago` : 'now';
  return html`<div class="slider" role="group" aria-label="Instant that is shown">
    <label>Back <select value=${String(span)} onChange=${(event) => setSpan(Number(event.target.value))}>${Object.entries(SPANS).map(([s, text]) => html`<option value=${s} selected=${Number(s) === span}>${text}</option>`)}</select></label>
    <input type="range" min=${-span} max="0" step=${Math.max(1, Math.round(span / 720))} value=${-backS} aria-label="Instant" aria-valuetext=${words}
      onInput=${(event) => setShown(-event.target.value)} onChange=${(event) => choose(-event.target.value)} />
    <label>UTC <input type="datetime-local" step="1" value=${chosen ? at.slice(0, 19) : ''} onChange=${typed} /></label>
    <output>${words}</output>
    <button disabled=${!at} onClick=${() => set(undefined)}>Now</button>
  </div>`;
}

function iso(ms) {
  return new Date(ms).toISOString().replace(/\.\d+Z$/, 'Z');
}
