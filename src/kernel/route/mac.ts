// Parses and formats MAC addresses such as `ee:ee:ee:ee:ee:ee`.
import { ParseError } from "../../lib/ip/ip.ts";

export function parseMac(text: string): Uint8Array {
  if (!/^[0-9a-f]{2}(:[0-9a-f]{2}){5}$/i.test(text))
    throw new ParseError("MAC address", text, "want ee:ee:ee:ee:ee:ee");
  return Uint8Array.from(text.split(":"), (part) => Number.parseInt(part, 16));
}

export function formatMac(bytes: Uint8Array): string {
  let text = "";
  for (let i = 0; i < bytes.length; i++) text += `${i > 0 ? ":" : ""}${(bytes[i] ?? 0).toString(16).padStart(2, "0")}`;
  return text;
}
