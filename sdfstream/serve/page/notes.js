// What operators said of findings, in words: silences and labels.
import { time } from './format.js';

export function silenceOf({ silence }) {
  return silence ? `silenced${silence.maintenance ? ' for maintenance' : ''} until ${time(silence.until_ns)} by ${silence.by}${silence.reason ? `: ${silence.reason}` : ''}` : '';
}

export function labelOf({ label }) {
  return label ? `${label.cause === 'false-alarm' ? 'a false alarm' : label.cause}, says ${label.by}${label.note ? `: ${label.note}` : ''}` : '';
}
