// A chart over time, with bands of error and marks for findings and commands; the marks are listed below it as well.
import { html, useEffect, useRef } from './lib.js';
import { useWidth } from './canvas_grid.js';
import { time } from './format.js';
import uPlot from './vendor/uplot.js';

const HEIGHT = 230;

// x: seconds; series: [{label, values, low, high, colour, dash}]; marks: [{at_s, sign, text, href}]; text: value → words.
export function Chart({ name, x, series, marks = [], text }) {
  const box = useRef(null);
  const width = useWidth(box);
  const key = JSON.stringify([x.length, x[0], x[x.length - 1], marks.length, width, matchMedia('(prefers-color-scheme: dark)').matches]);
  useEffect(() => {
    if (!width || x.length === 0) return undefined;
    const plot = new uPlot(options({ width, series, marks, text, element: box.current }), columns(x, series), box.current);
    return () => plot.destroy();
  }, [key]);
  const inside = marks.filter((mark) => x.length && mark.at_s >= x[0] && mark.at_s <= x[x.length - 1]);
  return html`<figure class="chart" aria-label=${`${name}, ${x.length} instants${x.length ? ` from ${time(x[0] * 1e9)} to ${time(x[x.length - 1] * 1e9)}` : ''}`}>
    <div ref=${box} aria-hidden="true"></div>
    ${inside.length > 0 && html`<figcaption>Marks: ${inside.map((mark) => html`<span class="mark">${mark.sign} <a href=${mark.href}>${mark.text}</a> ${time(mark.at_s * 1e9).slice(11)} </span>`)}</figcaption>`}
  </figure>`;
}

function columns(x, series) {
  return [x, ...series.flatMap((one) => (one.low ? [one.values, one.low, one.high] : [one.values]))];
}

function options({ width, series, marks, text, element }) {
  const style = getComputedStyle(element);
  const colour = (name) => style.getPropertyValue(`--${name}`).trim();
  const lines = [];
  const bands = [];
  for (const one of series) {
    const stroke = colour(one.colour);
    lines.push({ label: one.label, stroke, width: 1.6, dash: one.dash, value: (_, v) => (v === null ? '–' : text(v)), spanGaps: false, points: { show: one.values.length < 80, size: 4 } });
    if (one.low) {
      const edge = { stroke: 'transparent', width: 0, points: { show: false } };
      lines.push({ ...edge, label: `${one.label}, least`, value: (_, v) => (v === null ? '–' : text(v)) }, { ...edge, label: `${one.label}, most`, value: (_, v) => (v === null ? '–' : text(v)) });
      bands.push({ series: [lines.length, lines.length - 1], fill: `${stroke}33` });
    }
  }
  const axis = { stroke: colour('soft'), grid: { stroke: colour('edge'), width: 0.5 }, ticks: { stroke: colour('edge') } };
  return {
    width,
    height: HEIGHT,
    tzDate: (s) => uPlot.tzDate(new Date(s * 1e3), 'Etc/UTC'),
    series: [{ label: 'UTC' }, ...lines],
    bands,
    axes: [axis, { ...axis, size: 80, values: (_, ticks) => ticks.map(text) }],
    hooks: { draw: [(plot) => drawMarks(plot, marks, colour)] },
  };
}

function drawMarks(plot, marks, colour) {
  const { ctx: pen, bbox } = plot;
  pen.save();
  pen.strokeStyle = pen.fillStyle = colour('unhealthy');
  pen.setLineDash([4, 4]);
  for (const mark of marks) {
    const at = plot.valToPos(mark.at_s, 'x', true);
    if (at < bbox.left || at > bbox.left + bbox.width) continue;
    pen.beginPath();
    pen.moveTo(at, bbox.top);
    pen.lineTo(at, bbox.top + bbox.height);
    pen.stroke();
    pen.fillText(mark.sign, at + 3, bbox.top + 12);
  }
  pen.restore();
}
