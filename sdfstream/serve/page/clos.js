// The fabric's links as columns: hosts, leaves, spines. Lines of healthy links are thin; of others thick or dashed.
import { html, useMemo } from './lib.js';
import { useList } from './data.js';
import { stale } from './freshness.js';
import { natural } from './format.js';
import { Notice, State, Table } from './icons.js';
import { to } from './route.js';
import { shown } from './states.js';
import { useStore } from './store.js';

const ROW = 26;
const MOST_LINES = 600; // more healthy ones are not drawn: nobody could follow them

export function Links() {
  const found = useList('links', {}, { events: ['finding', 'nic'], everyMs: 5000 });
  const isStale = useStore(stale);
  const fabric = useMemo(() => columns(found.items), [found.items]);
  const wrong = found.items.filter((link) => link.state === 'unhealthy' || (link.state === 'unknown' && !link.a.includes('/') && !link.b.includes('/')));
  return html`<section aria-labelledby="links">
    <h2 id="links">Links</h2>
    <${Notice} of=${found} nothing="No cabling is declared: which links there are is unknown." />
    ${found.total > 0 && html`<div class="scroll" tabindex="0" role="region" aria-label="Links of the fabric, in columns"><${Drawing} fabric=${fabric} isStale=${isStale} /></div>`}
    ${wrong.length > 0 && html`<${Table} label="Links that are not healthy" items=${wrong} keyOf=${(link) => link.link} most=${50} columns=${[
      ['Link', (link) => html`<a href=${to('rack', link.a.includes('/') ? link.b : link.a)}>${link.link}</a>`],
      ['State', (link) => html`<${State} is=${link.state} />`],
      ['Directions', (link) => link.directions.map((d) => `${d.direction} ${shown(d.state, isStale)}`).join(', ')],
      ['Findings', (link) => link.findings.map((id) => html`<a href=${to('finding', id)}>${id.slice(0, 12)}</a> `)],
    ]} />`}
  </section>`;
}

// Switches by distance from the NICs, with the links between them and how the NICs' own links are.
export function columns(links) {
  const isNic = (node) => node.includes('/');
  const below = new Map();
  const between = [];
  for (const link of links) {
    const nic = [link.a, link.b].find(isNic);
    if (!nic) {
      between.push(link);
      continue;
    }
    const leaf = nic === link.a ? link.b : link.a;
    below.set(leaf, [...(below.get(leaf) || []), link.state]);
  }
  const leaves = [...below.keys()].filter((node) => !isNic(node)).sort(natural);
  const tiers = [leaves];
  const placed = new Set(leaves);
  for (;;) {
    const edge = tiers[tiers.length - 1];
    const above = [...new Set(between.flatMap(({ a, b }) => (edge.includes(a) ? [b] : edge.includes(b) ? [a] : [])))].filter((node) => !placed.has(node));
    if (!above.length) break;
    above.forEach((node) => placed.add(node));
    tiers.push(above.sort(natural));
  }
  return { tiers, between, below };
}

function Drawing({ fabric, isStale }) {
  const { tiers, between, below } = fabric;
  const height = Math.max(...tiers.map((tier) => tier.length)) * ROW + 30;
  const at = new Map(tiers.flatMap((tier, t) => tier.map((node, i) => [node, { t, x: 150 + t * 260, y: 30 + ((i + 0.5) * (height - 30)) / tier.length }])));
  const order = { healthy: 0, absent: 1, unknown: 2, unhealthy: 3 };
  const lines = between.filter((link) => at.has(link.a) && at.has(link.b)).sort((p, q) => order[q.state] - order[p.state]).slice(0, MOST_LINES).reverse();
  const names = ['Leaves', 'Spines', 'Above'];
  return html`<svg width=${150 + tiers.length * 260} height=${height} role="group" aria-label=${sentence(fabric, isStale)} class="clos">
    ${lines.map((link) => {
      const [p, q] = [at.get(link.a), at.get(link.b)].sort((one, other) => one.t - other.t);
      return html`<line key=${link.link} class=${shown(link.state, isStale)} x1=${p.x + 50} y1=${p.y} x2=${q.x - 10} y2=${q.y}><title>${`${link.link}: ${shown(link.state, isStale)}`}</title></line>`;
    })}
    ${tiers.map((_, t) => html`<text class="head" x=${150 + t * 260} y="14">${names[Math.min(t, 2)]}</text>`)}
    <text class="head" x="4" y="14">NICs' links</text>
    ${[...at].map(([node, { x, y, t }]) => html`<g key=${node}>
      <a href=${to('rack', node)}><text x=${x} y=${y + 4}>${node.slice(0, 12)}</text></a>
      ${t === 0 && html`<text x="4" y=${y + 4} class="below">${counted(below.get(node) || [], isStale)}</text>`}</g>`)}
  </svg>`;
}

function counted(states, isStale) {
  const good = states.filter((state) => shown(state, isStale) === 'healthy').length;
  return `${good === states.length ? '●' : '!'} ${good} of ${states.length} healthy`;
}

function sentence({ tiers, between }, isStale) {
  const by = (state) => between.filter((link) => shown(link.state, isStale) === state).length;
  return `${tiers.map((tier) => tier.length).join(' and ')} switches; between them ${by('healthy')} links healthy, ${by('unhealthy')} unhealthy, ${by('unknown')} unknown`;
}
