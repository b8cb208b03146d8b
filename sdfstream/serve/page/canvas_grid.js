// A canvas of cells on a grid, as large as thousands: pointed at, walked with the arrow keys, opened with Enter.
import { colours } from './states.js';
import { html, useEffect, useLayoutEffect, useRef, useState } from './lib.js';

const STEPS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

// cells: [{x, y, ...}] in units of cells; labels: [{x, y, text, right}] in pixels of the grid; paint(pen, cell, size, palette).
export function CanvasGrid({ name, cells, labels = [], columns, rows, size, left = 0, top = 0, paint, describe, open, version }) {
  const canvas = useRef(null);
  const [at, setAt] = useState(null);
  const where = useRef(new Map());
  const theme = useTheme();
  useLayoutEffect(() => {
    where.current = new Map(cells.map((cell) => [`${cell.x},${cell.y}`, cell]));
    drawAll(canvas.current, { cells, labels, columns, rows, size, left, top, paint, at });
  }, [cells, labels, columns, rows, size, at, version, theme]);

  const pointed = (event) => {
    const box = canvas.current.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left - left, event.clientY - box.top - top].map((d) => Math.floor(d / size));
    return where.current.get(`${x},${y}`);
  };
  const move = (event) => {
    if (event.key === 'Enter' && at) return open(at);
    const step = STEPS[event.key];
    if (!step) return undefined;
    event.preventDefault();
    setAt(next(where.current, at || cells[0], step, columns, rows));
    return undefined;
  };
  return html`<div class="grid">
    <canvas ref=${canvas} tabindex="0" role="application" aria-label=${`${name}: move with the arrow keys, open with Enter`}
      onKeyDown=${move} onFocus=${() => at || setAt(cells[0] || null)}
      onPointerMove=${(event) => { const cell = pointed(event); if (cell !== at && cell) setAt(cell); }}
      onClick=${(event) => { const cell = pointed(event); if (cell) open(cell); }}></canvas>
    <p class="said" aria-live="polite">${at ? describe(at) : 'Point at a cell, or move with the arrow keys.'}</p>
  </div>`;
}

// The next cell in a direction; gaps are stepped over.
export function next(where, from, [dx, dy], columns, rows) {
  if (!from) return null;
  let { x, y } = from;
  for (let i = 0; i < Math.max(columns, rows); i += 1) {
    x += dx;
    y += dy;
    const cell = where.get(`${x},${y}`);
    if (cell) return cell;
  }
  return from;
}

function drawAll(canvas, { cells, labels, columns, rows, size, left, top, paint, at }) {
  const scale = devicePixelRatio || 1;
  const [width, height] = [left + columns * size + 1, top + rows * size + 1];
  if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
    canvas.width = width * scale;
    canvas.height = height * scale;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const pen = canvas.getContext('2d');
  const palette = colours(canvas);
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, width, height);
  pen.font = '11px system-ui, sans-serif';
  pen.textBaseline = 'middle';
  pen.fillStyle = palette.ink;
  for (const { x, y, text, right } of labels) {
    pen.textAlign = right ? 'right' : 'left';
    pen.fillText(text, x, y);
  }
  pen.translate(left, top);
  for (const cell of cells) {
    pen.save();
    pen.translate(cell.x * size, cell.y * size);
    paint(pen, cell, size, palette);
    pen.restore();
  }
  if (at) {
    pen.strokeStyle = palette.mark;
    pen.lineWidth = 2;
    pen.strokeRect(at.x * size, at.y * size, size, size);
  }
}

function useTheme() {
  const query = matchMedia('(prefers-color-scheme: dark)');
  const [dark, set] = useState(query.matches);
  useEffect(() => {
    const change = () => set(query.matches);
    query.addEventListener('change', change);
    return () => query.removeEventListener('change', change);
  }, []);
  return dark;
}

// Width that an element has, followed.
export function useWidth(ref) {
  const [width, set] = useState(0);
  useLayoutEffect(() => {
    set(ref.current.clientWidth);
    const watch = new ResizeObserver(() => ref.current && set(ref.current.clientWidth));
    watch.observe(ref.current);
    return () => watch.disconnect();
  }, []);
  return width;
}
