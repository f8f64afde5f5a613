// Objects we derive from Kubernetes' need UIDs of their own that are stable and tell where they come from: the bits of
// each byte are reversed, but for the two bytes that say the UUID's version and variant. Doing it twice gives the first.

const KEPT = new Set([6, 8]);

/** Text that is no UUID stays as it is. */
export function convertUid(uid: string): string {
  if (!/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i.test(uid)) return uid;
  const hex = uid.replaceAll("-", "").toLowerCase();
  let converted = "";
  for (let i = 0; i < 16; i++) {
    const text = hex.slice(2 * i, 2 * i + 2);
    converted += KEPT.has(i) ? text : reverseBits(Number.parseInt(text, 16)).toString(16).padStart(2, "0");
  }
  return converted.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
}

function reverseBits(byte: number): number {
  let reversed = 0;
  for (let bit = 0; bit < 8; bit++) if ((byte & (1 << bit)) !== 0) reversed |= 128 >> bit;
  return reversed;
}
