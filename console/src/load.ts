/** What pages load: asked when shown, again when told to, and kept while a newer answer is on its way. */
import { useCallback, useEffect, useState } from "preact/hooks";
import { type ApiError, call, isFinal, session } from "./api";

export interface Loaded<T> {
  data: T | null;
  error: ApiError | Error | null;
  /** True until the first answer. */
  loading: boolean;
  reload: () => void;
}

type State<T> = { key: string | null; data: T | null; error: Error | null };

/** Seconds until what failed is tried again, where that may help. */
const AFTER_FAILURE = 5;

/** Load by a function of one's own; `key` says what is loaded, null: nothing. `every`: again after so many seconds. */
export function useLoad<T>(key: string | null, load: (signal: AbortSignal) => Promise<T>, every = 0): Loaded<T> {
  const [state, setState] = useState<State<T>>({ key, data: null, error: null });
  const [turn, setTurn] = useState(0);
  const token = session.value?.token;
  useEffect(() => {
    if (key === null) return;
    const leaving = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const again = async () => {
      let pause = every;
      try {
        const data = await load(leaving.signal);
        if (!leaving.signal.aborted) setState({ key, data, error: null });
      } catch (error) {
        if (leaving.signal.aborted) return;
        setState((last) => ({ key, data: last.key === key ? last.data : null, error: error as Error }));
        pause = isFinal(error) ? 0 : every || AFTER_FAILURE;
      }
      if (pause > 0 && !leaving.signal.aborted) timer = setTimeout(again, pause * 1000);
    };
    void again();
    return () => {
      clearTimeout(timer);
      leaving.abort();
    };
  }, [key, turn, token, every]);
  const reload = useCallback(() => setTurn((last) => last + 1), []);
  const current = state.key === key ? state : { data: null, error: null };
  return { ...current, loading: key !== null && !current.data && !current.error, reload };
}

/** Load what a GET of a path, which may have a query, answers; null loads nothing. */
export function useGet<T>(address: string | null, every = 0): Loaded<T> {
  const [path = "", text] = address?.split("?") ?? [];
  const query = Object.fromEntries(new URLSearchParams(text));
  return useLoad<T>(address, (signal) => call<T>(path, { query, signal }), every);
}
