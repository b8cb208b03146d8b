// What every view is written with: Preact's elements as tagged templates, and its hooks.
import { h, render } from './vendor/preact.js';
import htm from './vendor/htm.js';

export { useEffect, useLayoutEffect, useMemo, useRef, useState } from './vendor/preact-hooks.js';
export const html = htm.bind(h);
export { render };
