// Frames on a driver's pipes: eight bytes of length, little-endian, then the message.
import { ProtoError } from "../../lib/protobuf.ts";

const HEADER = 8;
/** No message is that long: a length beyond it means that the two sides have lost each other. */
const LONGEST = 1 << 30;

export function frame(message: Uint8Array): Uint8Array {
  const framed = new Uint8Array(HEADER + message.length);
  new DataView(framed.buffer).setBigUint64(0, BigInt(message.length), true);
  framed.set(message, HEADER);
  return framed;
}

/** Cuts a stream of bytes, in whatever pieces it comes, back into messages. */
export class FrameReader {
  #pending: Uint8Array = new Uint8Array(0);

  *take(chunk: Uint8Array): Generator<Uint8Array> {
    const all = new Uint8Array(this.#pending.length + chunk.length);
    all.set(this.#pending);
    all.set(chunk, this.#pending.length);
    const view = new DataView(all.buffer);
    let at = 0;
    while (all.length - at >= HEADER) {
      const length = view.getBigUint64(at, true);
      if (length > LONGEST) throw new ProtoError(`frame of ${length} bytes: this is not the dataplane protocol`);
      const end = at + HEADER + Number(length);
      if (end > all.length) break;
      yield all.subarray(at + HEADER, end);
      at = end;
    }
    this.#pending = all.slice(at);
  }
}
