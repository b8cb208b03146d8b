// The shell: menu, age of the data, the instant that is shown, and the view that the address names.
import { Age } from './age.js';
import { ask, setToken } from './api.js';
import { note } from './freshness.js';
import { html, render, useEffect, useRef, useState } from './lib.js';
import { begin } from './live.js';
import { change, route, to } from './route.js';
import { Slider } from './slider.js';
import { useStore } from './store.js';
import { MENU, useView } from './views.js';

function App() {
  const { view, id, query } = useStore(route);
  const [refused, setRefused] = useState(null);
  const main = useRef(null);
  const { shown: Shown, missing, failed } = useView(view);
  useEffect(() => {
    ask('nics', { limit: 1 }).then((head) => (note(head), begin())).catch((error) => (error.status === 401 ? setRefused(error) : begin()));
  }, []);
  useEffect(() => {
    document.title = `${[view, ...id].join(' ')} · sdfstream`;
    if (document.activeElement !== document.body) main.current?.focus({ preventScroll: true });
    scrollTo(0, 0);
  }, [view, id.join('/')]);
  if (refused) return html`<${TokenForm} why=${refused.message} />`;
  return html`
    <a class="skip" href="#main" onClick=${(event) => (event.preventDefault(), main.current.focus())}>To the content</a>
    <header>
      <a class="brand" href=${to('fleet')}>sdfstream</a>
      <nav aria-label="Pages">${MENU.map(([name, title]) => html`<a href=${to(name)} aria-current=${name === view ? 'page' : undefined}>${title}</a>`)}</nav>
      <${Age} />
    </header>
    <${Slider} at=${query.at} set=${(at) => change({ at })} />
    <main id="main" tabindex="-1" ref=${main}>
      ${Shown && html`<${Shown} key=${[view, ...id].join('/')} id=${id[0]} other=${id[1]} />`}
      ${missing && html`<h1>There is no such page</h1><p><a href=${to('fleet')}>Fleet</a></p>`}
      ${failed && html`<h1>Not loaded</h1><p role=\"alert\">The server is away. <a href=\"/\">Again</a></p>`}
    </main>`;
}

function TokenForm({ why }) {
  const enter = (event) => {
    event.preventDefault();
    setToken(new FormData(event.target).get('token').trim());
    location.reload();
  };
  return html`<main class="door"><h1>sdfstream</h1><p role="alert">${why}</p>
    <form onSubmit=${enter}><label>Token <input name="token" type="password" autocomplete="off" required /></label> <button>Enter</button></form>
    <p>It is forgotten when this tab is closed.</p></main>`;
}

render(html`<${App} />`, document.getElementById('page'));
