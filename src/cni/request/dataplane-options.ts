// Who makes the pod's wire: we, or a server that `dataplane_options` names.
import { CniError, INTERNAL } from "../error.ts";
import type { ForeignDataplane } from "../attach/grpc-dataplane.ts";
import type { GrpcServer } from "../attach/grpc-client.ts";
import type { NetConf } from "./net-conf.ts";

/** What such a server has for one answer. */
export const FOREIGN_ANSWER_SECONDS = 5;
/** What the kernel takes as a socket's path. */
const PATH_BYTES = 107;

/** Undefined: the wire is ours. @throws CniError when it is nobody's */
export function foreignDataplane({
  dataplaneOptions,
}: Pick<NetConf, "dataplaneOptions">): ForeignDataplane | undefined {
  const type = dataplaneOptions?.["type"];
  if (dataplaneOptions === undefined || type === undefined) return undefined;
  if (type !== "grpc") throw new CniError(INTERNAL, `invalid dataplane type: ${String(type)}`);
  const { socket } = dataplaneOptions;
  if (typeof socket !== "string") throw new CniError(INTERNAL, "GRPC dataplane socket not configured");
  const texts = Object.entries(dataplaneOptions).filter(([, value]) => typeof value === "string");
  return { server: serverAt(socket), options: Object.fromEntries(texts) as Record<string, string> };
}

/** Somebody else makes the wire; whether he can be asked is not looked at. */
export const isForeign = ({ dataplaneOptions }: Pick<NetConf, "dataplaneOptions">): boolean =>
  dataplaneOptions?.["type"] !== undefined;

/** `unix:///run/x.sock`, `unix:/run/x.sock`, `/run/x.sock`, or `host:port`. */
function serverAt(socket: string): GrpcServer {
  const path = /^(?:unix:(?:\/\/)?)?(\/[^\0]*)$/.exec(socket)?.[1];
  if (path !== undefined && Buffer.byteLength(path) <= PATH_BYTES) return { name: socket, address: { path } };
  const [, host = "", port = ""] = /^(?:dns:\/\/\/)?(\[[0-9a-fA-F:]+\]|[A-Za-z0-9.-]+):(\d{1,5})$/.exec(socket) ?? [];
  if (path === undefined && Number(port) > 0 && Number(port) < 65_536)
    return { name: socket, address: { host: host.replace(/^\[|\]$/g, ""), port: Number(port) } };
  throw new CniError(
    INTERNAL,
    `dataplane_options.socket: ${JSON.stringify(socket.slice(0, 120))}: want unix:///an/absolute/path of at most ${PATH_BYTES} bytes, or host:port`,
  );
}
