// Formats numbers of addresses for tables.

/** Formats a number with five significant digits, and with an exponent if it has more: `65536`, `1.6777e+07`. */
export function fiveDigits(value: bigint): string {
  const number = Number(value);
  const [digits = "", exponent] = number.toPrecision(5).split("e");
  const short = digits.includes(".") ? digits.replace(/\.?0+$/, "") : digits;
  if (exponent === undefined) return short;
  return `${short}e${exponent[0]}${exponent.slice(1).padStart(2, "0")}`;
}

/** Formats a number with its percentage, such as `3 (19%)`. Halves are rounded to even, as in Go. */
export function withPercentage(part: bigint, whole: bigint): string {
  const percent = whole === 0n ? 0 : (100 * Number(part)) / Number(whole);
  const below = Math.floor(percent);
  const rest = percent - below;
  const rounded = rest > 0.5 || (rest === 0.5 && below % 2 === 1) ? below + 1 : below;
  return `${fiveDigits(part)} (${rounded}%)`;
}
