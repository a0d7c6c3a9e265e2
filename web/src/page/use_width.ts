import { useLayoutEffect, useRef, useState } from "preact/hooks";

/** Returns the current width (pixels) of an element, and a reference to attach to it. */
export function useWidth<E extends HTMLElement>() {
  const element = useRef<E>(null);
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => {
    const measure = () => setWidth(element.current!.clientWidth);
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(element.current!);
    return () => observer.disconnect();
  }, []);
  return { element, width };
}
