// The states, each with a shape of its own: no state is said by colour alone. Used by canvas, tables and legends.
export const STATES = ['unhealthy', 'unknown', 'absent', 'healthy'];

// Where nothing was received for a while nothing is healthy: `isStale` makes all of it unknown.
export function shown(state, isStale) {
  return isStale || !STATES.includes(state) ? 'unknown' : state;
}

// What a shape is made of: a path in a square of side 1, filled or drawn as a line.
const SHAPES = {
  healthy: { fill: true, path: (p) => p.arc(0.5, 0.5, 0.36, 0, 7) },
  unhealthy: { path: (p) => (p.moveTo(0.16, 0.16), p.lineTo(0.84, 0.84), p.moveTo(0.84, 0.16), p.lineTo(0.16, 0.84)), wide: true },
  unknown: { path: (p) => p.rect(0.2, 0.2, 0.6, 0.6), dashed: true },
  absent: { path: (p) => (p.moveTo(0.25, 0.5), p.lineTo(0.75, 0.5)) },
};

export function colours(element) {
  const style = getComputedStyle(element);
  return Object.fromEntries([...STATES, 'ink', 'paper', 'edge', 'mark'].map((name) => [name, style.getPropertyValue(`--${name}`)]));
}

export function draw(pen, state, x, y, size, palette) {
  const shape = SHAPES[state] || SHAPES.unknown;
  pen.save();
  pen.translate(x, y);
  pen.scale(size, size);
  pen.beginPath();
  shape.path(pen);
  pen.fillStyle = pen.strokeStyle = palette[state] || palette.unknown;
  pen.lineWidth = shape.wide ? 0.2 : 0.1;
  pen.setLineDash(shape.dashed ? [0.16, 0.1] : []);
  if (shape.fill) pen.fill();
  else pen.stroke();
  pen.restore();
}

export const SIGNS = { healthy: '●', unhealthy: '✖', unknown: '□', absent: '–' };
