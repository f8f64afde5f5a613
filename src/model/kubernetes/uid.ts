// Converts UIDs, so that a resource derived from a Kubernetes object has its own, stable UID: reverses the bits of each
// byte, except for the two bytes that contain the UUID's version and variant. The conversion is its own inverse.

/** The bytes with version and variant. */
const UNCHANGED = new Set([6, 8]);

/** Returns text unchanged that is not a UUID. */
export function convertUid(uid: string): string {
  if (!/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i.test(uid)) return uid;
  const hex = uid.replaceAll("-", "").toLowerCase();
  let converted = "";
  for (let i = 0; i < 16; i++) {
    const text = hex.slice(2 * i, 2 * i + 2);
    converted += UNCHANGED.has(i) ? text : reverseBits(Number.parseInt(text, 16)).toString(16).padStart(2, "0");
  }
  return converted.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
}

function reverseBits(byte: number): number {
  let reversed = 0;
  for (let bit = 0; bit < 8; bit++) if ((byte & (1 << bit)) !== 0) reversed |= 128 >> bit;
  return reversed;
}
