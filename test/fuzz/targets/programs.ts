// Targets for bytes from other programs on the node, and from Typha and its clients.
import { EventEmitter } from "node:events";
import type { Socket } from "node:net";
import { parseReplyLine, type ReplyLine } from "../../../src/bgp/bird/control.ts";
import { bgpSessions, parseProtocols, parseRoutes, parseStatus } from "../../../src/bgp/bird/replies.ts";
import { FrameReader as DriverFrameReader } from "../../../src/calc/wire/frames.ts";
import { decodeFromDataplane } from "../../../src/calc/wire/from-dataplane.ts";
import { parseLegacySave, parseNftTable } from "../../../src/calicoctl/doctor/packet-filters.ts";
import { parseSave } from "../../../src/dataplane/iptables/save-text.ts";
import { createLogger } from "../../../src/lib/log/log.ts";
import { ProtoError } from "../../../src/lib/encoding/protobuf.ts";
import { isStoredKey } from "../../../src/model/index.ts";
import { parseErrorLine } from "../../../src/node/bgp/session-errors.ts";
import { Connection, type ConnectionObserver } from "../../../src/typha/connection.ts";
import {
  FRAME,
  FrameReader,
  MAX_SERVER_FRAME,
  parseJson,
  PREFACE,
  ProtocolError,
} from "../../../src/typha/protocol.ts";
import { decodeHead, decodeRecords, encodeRecords, textUpdate } from "../../../src/typha/records.ts";
import { SnapshotCache } from "../../../src/typha/snapshot-cache.ts";
import { bytes } from "../structure/bytes.ts";
import { frames } from "../structure/frames.ts";
import { text } from "../structure/text.ts";
import { type FuzzTarget, require, requireEqual, textOf } from "../target.ts";

function parseReplies(content: string): readonly ReplyLine[] | undefined {
  const lines: ReplyLine[] = [];
  let code = 0;
  for (const line of content.split("\n")) {
    const parsed = parseReplyLine(line, code);
    if (parsed === undefined) return undefined;
    code = parsed.code;
    lines.push(parsed);
  }
  return lines;
}

function readBird(input: Uint8Array): boolean {
  const content = textOf(input);
  for (const line of content.split("\n")) parseErrorLine(line);
  const lines = parseReplies(content);
  if (lines === undefined) return false;
  const protocols = parseProtocols(lines);
  for (const { imported, exported, updatesReceived } of bgpSessions(protocols))
    require([imported, exported, updatesReceived].every((n) => n >= 0), "counts are not negative");
  const routes = parseRoutes(lines);
  return protocols.length + routes.length > 0 || parseStatus(lines).version !== "";
}

const silentLog = createLogger({ level: "error", write: () => {} });
const observer: ConnectionObserver = {
  onHandshake: () => {},
  onSnapshotSent: () => {},
  onWrite: () => {},
  onLatency: () => {},
  onPong: () => {},
  onGraceUsed: () => {},
  onClosed: () => {},
};
const HOUR_MS = 3_600_000;
const timings = {
  handshakeMs: HOUR_MS,
  writeMs: HOUR_MS,
  pingMs: HOUR_MS,
  pongMs: HOUR_MS,
  maxFallBehindMs: HOUR_MS,
  newClientGraceMs: HOUR_MS,
};

/** A socket that discards what is written to it. */
class FakeSocket extends EventEmitter {
  readonly writableLength = 0;
  readonly writableNeedDrain = false;
  destroyed = false;
  setNoDelay(): void {}
  write(): boolean {
    return true;
  }
  end(): void {
    this.destroyed = true;
  }
  destroy(): void {
    this.destroyed = true;
  }
}

async function serveTypha(input: Uint8Array): Promise<boolean> {
  const socket = new FakeSocket();
  const connection = new Connection({
    id: "fuzz",
    socket: socket as unknown as Socket,
    caches: new Map([["felix", new SnapshotCache()]]),
    timings,
    observer,
    log: silentLog,
    serverVersion: "fuzz",
    maxRecords: 100,
  });
  // In two chunks, as the network may split it.
  const half = input.length >> 1;
  for (const chunk of [input.subarray(0, half), input.subarray(half)]) socket.emit("data", Buffer.from(chunk));
  await Promise.resolve();
  const isAccepted = !connection.isClosed && connection.hello !== undefined;
  if (isAccepted) require((connection.hello?.hostname.length ?? 0) <= 256, "the client's name is cut");
  connection.close("done");
  return isAccepted;
}

/** Handles the frames of a server as a client does. */
function readTypha(input: Uint8Array): boolean {
  const reader = new FrameReader({ maxFrame: MAX_SERVER_FRAME, allowCompressed: true });
  reader.push(Buffer.from(input));
  let isAccepted = false;
  for (let frame = reader.next(); frame !== undefined; frame = reader.next()) {
    const { type, payload } = frame;
    require(payload.length <= MAX_SERVER_FRAME, `a payload of ${payload.length} bytes`);
    if (type === FRAME.updates) checkRecords(payload);
    else if (type === FRAME.crumb) checkRecords(decodeHead(payload).rest);
    else if (type === FRAME.end) decodeHead(payload);
    else if (type !== FRAME.begin) parseJson(payload);
    isAccepted = true;
  }
  return isAccepted;
}

function checkRecords(payload: Buffer): void {
  const { updates, paths } = decodeRecords(payload);
  require(updates.length === paths.length, "a path for each update");
  const stored = updates.filter(({ key, value }) => isStoredKey(key) && value !== undefined);
  if (payload.toString().split(/[[{]/).length > 1000) return; // too deep to be encoded: such a value is treated as deleted
  // Compared as text, because JSON has neither -0 nor Infinity, and empty maps are not encoded.
  const written = encodeRecords(stored.map(textUpdate)).toString();
  const again = decodeRecords(Buffer.from(written)).updates;
  requireEqual(encodeRecords(again.map(textUpdate)).toString(), written, "records written and read again");
}

function readDriver(input: Uint8Array): boolean {
  let isAccepted = false;
  for (const message of new DriverFrameReader().read(input))
    if (decodeFromDataplane(message) !== undefined) isAccepted = true;
  return isAccepted;
}

export const targets: Readonly<Record<string, FuzzTarget>> = {
  "iptables-save": {
    about: "iptables-save and nft list, with comments that anybody writes",
    structure: text,
    dictionary: [
      "-A cali-FORWARD ",
      ":cali-x - [0:0]\n",
      '--comment "cali:',
      "-j cali-",
      "*filter\n",
      "COMMIT\n",
      "chain x {\n",
      "}\n",
    ],
    rejections: [],
    run: (input) => {
      const content = textOf(input);
      const chains = parseSave(content, /old/);
      for (const rules of chains.values())
        for (const { hash, isOwned } of rules) require(hash === undefined || isOwned, "a rule with our hash is ours");
      parseNftTable("ip", "filter", content);
      parseLegacySave("ip", content);
      return chains.size > 0;
    },
  },
  "bird-reply": {
    about: "replies on BIRD's control socket and lines of its log",
    structure: text,
    dictionary: [
      "1002-",
      "1006-",
      "1007-",
      "0000 \n",
      "Established",
      "    BGP state: ",
      "   \tvia 10.0.0.1 on eth0",
      "<RMT> Node_",
    ],
    rejections: [],
    run: readBird,
  },
  "typha-client-stream": {
    about: "what a client sends to Typha",
    structure: frames(PREFACE),
    dictionary: ["felix", "policy-kinds", '"version":1'],
    rejections: [],
    run: serveTypha,
  },
  "typha-server-stream": {
    about: "what Typha sends to its clients",
    structure: frames(new Uint8Array(0)),
    dictionary: ["/calico/resources/v3/projectcalico.org/", "/calico/v1/"],
    rejections: [ProtocolError],
    run: readTypha,
  },
  "dataplane-driver": {
    about: "reports of an external dataplane driver",
    structure: bytes,
    rejections: [ProtoError],
    run: readDriver,
  },
};
