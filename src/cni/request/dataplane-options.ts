// Parses `dataplane_options`: whether a gRPC server creates the pod's interface instead of the plugin.
import { CniError, INTERNAL } from "../error.ts";
import type { GrpcDataplane } from "../attach/grpc-dataplane.ts";
import type { GrpcServer } from "../attach/grpc-client.ts";
import type { NetConf } from "./net-conf.ts";

export const GRPC_REPLY_TIMEOUT_SECONDS = 5;
/** The maximum length of a Unix socket's path. */
const MAX_PATH_BYTES = 107;

/**
 * Returns undefined if the plugin creates the interface itself.
 * @throws CniError if the options are invalid
 */
export function grpcDataplane({ dataplaneOptions }: Pick<NetConf, "dataplaneOptions">): GrpcDataplane | undefined {
  const type = dataplaneOptions?.["type"];
  if (dataplaneOptions === undefined || type === undefined) return undefined;
  if (type !== "grpc") throw new CniError(INTERNAL, `invalid dataplane type: ${String(type)}`);
  const { socket } = dataplaneOptions;
  if (typeof socket !== "string") throw new CniError(INTERNAL, "GRPC dataplane socket not configured");
  const texts = Object.entries(dataplaneOptions).filter(([, value]) => typeof value === "string");
  return { server: serverAt(socket), options: Object.fromEntries(texts) as Record<string, string> };
}

/** True if a dataplane type is configured. Other options are not validated. */
export const usesGrpcDataplane = ({ dataplaneOptions }: Pick<NetConf, "dataplaneOptions">): boolean =>
  dataplaneOptions?.["type"] !== undefined;

/** `unix:///run/x.sock`, `unix:/run/x.sock`, `/run/x.sock`, or `host:port`. */
function serverAt(socket: string): GrpcServer {
  const path = /^(?:unix:(?:\/\/)?)?(\/[^\0]*)$/.exec(socket)?.[1];
  if (path !== undefined && Buffer.byteLength(path) <= MAX_PATH_BYTES) return { name: socket, address: { path } };
  const [, host = "", port = ""] = /^(?:dns:\/\/\/)?(\[[0-9a-fA-F:]+\]|[A-Za-z0-9.-]+):(\d{1,5})$/.exec(socket) ?? [];
  if (path === undefined && Number(port) > 0 && Number(port) < 65_536)
    return { name: socket, address: { host: host.replace(/^\[|\]$/g, ""), port: Number(port) } };
  throw new CniError(
    INTERNAL,
    `dataplane_options.socket: ${JSON.stringify(socket.slice(0, 120))}: want unix:///an/absolute/path of at most ${MAX_PATH_BYTES} bytes, or host:port`,
  );
}
