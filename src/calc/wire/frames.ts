// Encodes and decodes the frames on an external driver's pipes: a length of eight bytes, little-endian, then the message.
import { ProtoError } from "../../lib/encoding/protobuf.ts";

const HEADER_BYTES = 8;
/** No message is that long. A greater length means that the stream is out of step, or is another protocol. */
const MAX_MESSAGE_BYTES = 1 << 30;

export function frame(message: Uint8Array): Uint8Array {
  const framed = new Uint8Array(HEADER_BYTES + message.length);
  new DataView(framed.buffer).setBigUint64(0, BigInt(message.length), true);
  framed.set(message, HEADER_BYTES);
  return framed;
}

/** Splits a byte stream, which arrives in arbitrary chunks, into messages. */
export class FrameReader {
  #pending: Uint8Array = new Uint8Array(0);

  *read(chunk: Uint8Array): Generator<Uint8Array> {
    const all = new Uint8Array(this.#pending.length + chunk.length);
    all.set(this.#pending);
    all.set(chunk, this.#pending.length);
    const view = new DataView(all.buffer);
    let at = 0;
    while (all.length - at >= HEADER_BYTES) {
      const length = view.getBigUint64(at, true);
      if (length > MAX_MESSAGE_BYTES)
        throw new ProtoError(`frame of ${length} bytes is too long: the driver does not use the dataplane protocol`);
      const end = at + HEADER_BYTES + Number(length);
      if (end > all.length) break;
      yield all.subarray(at + HEADER_BYTES, end);
      at = end;
    }
    this.#pending = all.slice(at);
  }
}
