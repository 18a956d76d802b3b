/** Palettes of ten colours. The order of inferno and cividis is visible to every eye and in grey; spectrum is the classic palette. */

export const PALETTES: Record<string, string[]> = {
  inferno: ["#170c3a", "#420a68", "#6b186e", "#932667", "#bb3754", "#dd513a", "#f37819", "#fca50a", "#f6d746", "#fcffa4"],
  cividis: ["#00224e", "#12356f", "#3b496c", "#575d6d", "#707173", "#8a8678", "#a59c74", "#c3b369", "#e1cc55", "#fee838"],
  spectrum: ["#4b0082", "#3a1fb8", "#1f4fe0", "#0a8fd0", "#00b39b", "#2fb344", "#9bc418", "#f0c000", "#f57f00", "#e00000"],
};
export const STEPS = 10;
/** Colours of changes: blue is less, red is more, the palest are the smallest changes (ColorBrewer's RdBu, which every eye can distinguish). */
export const DIVERGING = ["#053061", "#2166ac", "#4393c3", "#92c5de", "#d1e5f0", "#fddbc7", "#f4a582", "#d6604d", "#b2182b", "#67001f"];

/** Returns the step of a share between two bounds; -1 if the share is not known. */
export function stepOf(share: number | null, low: number, high: number): number {
  if (share === null) return -1;
  const step = Math.floor(((share - low) / (high - low)) * STEPS);
  return Math.min(STEPS - 1, Math.max(0, step));
}

/** Returns black or white, whichever reads better on a colour (WCAG contrast). */
export function inkOn(colour: string): string {
  const linear = [1, 3, 5].map((i) => {
    const c = parseInt(colour.slice(i, i + 2), 16) / 255;
    return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  });
  const light = 0.2126 * linear[0]! + 0.7152 * linear[1]! + 0.0722 * linear[2]!;
  return light > 0.179 ? "#000000" : "#ffffff";
}
