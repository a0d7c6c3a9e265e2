// Switches the theme: light, dark, or the theme of the system.
import { useEffect, useState } from "preact/hooks";

export type Theme = "auto" | "light" | "dark";

export function useTheme(): [Theme, () => void] {
  const [theme, setTheme] = useState<Theme>("auto");
  useEffect(() => {
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    // A canvas contains fixed colors, so it must be drawn again.
    window.dispatchEvent(new Event("themechange"));
  }, [theme]);
  const next: Record<Theme, Theme> = { auto: "light", light: "dark", dark: "auto" };
  return [theme, () => setTheme(next[theme])];
}

export function ThemeButton({ theme, onClick }: { theme: Theme; onClick: () => void }) {
  return (
    <button type="button" class="theme" onClick={onClick} title="Switch between themes">
      Theme: {theme}
    </button>
  );
}
