// Targets for bytes from etcd and the API server, and for the configuration of the datastore.
import { AUTHENTICATE, decodeWatchResponse, LEASE_GRANT, RANGE, TXN } from "../../../src/datastore/etcd/messages.ts";
import { ProtoError } from "../../../src/lib/encoding/protobuf.ts";
import { protobuf } from "../structure/protobuf.ts";
import { type FuzzTarget, require } from "../target.ts";

/** The first byte selects the message. */
function decodeEtcd(input: Uint8Array): boolean {
  const bytes = Buffer.from(input.subarray(1));
  switch ((input[0] ?? 0) % 5) {
    case 0: {
      const { rows, revision } = RANGE.decode(bytes);
      require(revision >= 0 && rows.every((row) => typeof row.path === "string"), "rows of a range");
      return rows.length > 0;
    }
    case 1:
      return TXN.decode(bytes).revision > 0;
    case 2:
      return LEASE_GRANT.decode(bytes) !== 0n;
    case 3:
      return AUTHENTICATE.decode(bytes) !== "";
    default:
      return decodeWatchResponse(bytes).events.length > 0;
  }
}

export const targets: Readonly<Record<string, FuzzTarget>> = {
  "etcd-message": {
    about: "etcd's answers and watch events",
    structure: (input, context) => {
      const other = (): Uint8Array => context.other().subarray(1);
      const message = protobuf(input.subarray(1), { ...context, other });
      const first = context.random.oneIn(20) ? context.random.byte() : (input[0] ?? 0);
      return new Uint8Array(Buffer.concat([Buffer.from([first]), message]));
    },
    dictionary: ["/calico/resources/v3/"],
    rejections: [ProtoError],
    run: decodeEtcd,
  },
};
