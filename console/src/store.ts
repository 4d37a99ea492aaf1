/** A value that components follow: what the whole tab shares, as the session and what is being waited for. */
import { useLayoutEffect, useState } from "preact/hooks";

export interface Store<T> {
  get(): T;
  set(value: T): void;
  follow(follower: (value: T) => void): () => void;
}

export function store<T>(first: T): Store<T> {
  let value = first;
  const followers = new Set<(value: T) => void>();
  return {
    get: () => value,
    set(next) {
      value = next;
      for (const each of [...followers]) each(next);
    },
    follow(follower) {
      followers.add(follower);
      return () => void followers.delete(follower);
    },
  };
}

export function useStore<T>(from: Store<T>): T {
  const [, again] = useState({});
  // Not useEffect: that runs after the paint, and a change before it would never be seen.
  useLayoutEffect(() => from.follow(() => again({})), [from]);
  return from.get();
}
