// An operator's hand on the page: the key, and buttons that sign. Where the tab cannot sign, the command line is shown.
import { html, useState } from './lib.js';
import { isPast } from './freshness.js';
import { forget, operator, take, whyNot } from './key.js';
import { send } from './override.js';
import { useStore } from './store.js';

// Who signs, and with which key; or the form that asks for it; or why this tab cannot. Of the past nothing is signed.
export function Hand({ command }) {
  const who = useStore(operator);
  const [said, say] = useState('');
  if (isPast()) return html`<p class="notice">The past cannot be changed: go to now to act.</p>`;
  const why = whyNot();
  if (why) return html`<p class="notice">${why}: <code>${command}</code></p>`;
  if (who) {
    return html`<p>Signs as ${who.name} with key <code>${who.keyId}</code>, in this tab alone. <button type="button" onClick=${forget}>Forget key</button></p>`;
  }
  const enter = async (event) => {
    event.preventDefault();
    const form = new FormData(event.target);
    try {
      await take(form.get('key'), form.get('name').trim());
    } catch (error) {
      say(error.message);
    }
  };
  return html`<form class="hand" onSubmit=${enter}>
    <label>Your name <input name="name" required autocomplete="username" pattern=".*\\S.*" /></label>
    <label>Key file <input name="key" type="file" required /></label>
    <button>Use key</button>
    <span role="alert">${said}</span>
  </form>
  <p class="notice">The file is keys/operator.key of your data folder. It is read into this tab, never stored and never sent. Or: <code>${command}</code></p>`;
}

// Buttons that sign: act(given) sends an override; said: what became of the last one.
export function useHand() {
  const who = useStore(operator);
  const [said, say] = useState({ text: '', bad: false });
  const act = async (given) => {
    say({ text: 'sent …', bad: false });
    try {
      const outcome = await send(given);
      say({ text: `${outcome.state}: ${outcome.why}`, bad: false });
    } catch (error) {
      say({ text: error.message, bad: true });
    }
  };
  return { can: Boolean(who) && !isPast() && !whyNot(), act, said: html`<p class=${said.bad ? 'bad' : ''} role="status">${said.text}</p>` };
}
