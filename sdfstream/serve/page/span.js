// How long a stretch the charts of a view show.
import { html } from './lib.js';
import { SPANS } from './history.js';
import { Choice } from './icons.js';
import { change, route } from './route.js';
import { useStore } from './store.js';

export function Span() {
  const { span = '3600' } = useStore(route).query;
  return html`<p class="choices"><${Choice} label="Stretch" value=${span} of=${SPANS} set=${(value) => change({ span: value })} /></p>`;
}
