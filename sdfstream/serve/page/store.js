// A value that views follow: `set` tells all of them.
import { useEffect, useState } from './lib.js';

export function store(value) {
  const followers = new Set();
  return {
    get: () => value,
    set(next) {
      value = next;
      for (const follow of [...followers]) follow(value);
    },
    follow(fn) {
      followers.add(fn);
      return () => followers.delete(fn);
    },
  };
}

export function useStore(of) {
  const [value, set] = useState(of.get());
  useEffect(() => {
    set(of.get()); // it may have changed between drawing and now
    return of.follow(set);
  }, [of]);
  return value;
}
