// Parses CNI_ARGS, `K=V;K=V`. Values are validated here once; none of them becomes a path or a command.
import { type IpAddress, tryParseAddress } from "../../lib/ip/ip.ts";
import { CniError, INTERNAL } from "../error.ts";

export interface CniArguments {
  readonly podName?: string;
  readonly podNamespace?: string;
  /** Runtimes set it only together with IgnoreUnknown. */
  readonly podUid?: string;
  /** Assign exactly this address. */
  readonly ip?: IpAddress;
  /** A namespace for endpoints of the `cni` orchestrator. */
  readonly testNamespace?: string;
}

/** Keys that `calico-ipam` ADD accepts. */
export const ADDRESS_ARGUMENTS: readonly string[] = ["IgnoreUnknown", "IP"];
/** Keys that all other commands accept. */
export const WORKLOAD_ARGUMENTS: readonly string[] = [
  ...ADDRESS_ARGUMENTS,
  "K8S_POD_NAME",
  "K8S_POD_NAMESPACE",
  "K8S_POD_INFRA_CONTAINER_ID",
];

/** @param ignoreUnknown whether keys that are not `known` are accepted; the key `IgnoreUnknown` overrides it */
export function parseCniArguments(
  text: string,
  ignoreUnknown: boolean,
  known: readonly string[] = WORKLOAD_ARGUMENTS,
): CniArguments {
  const pairs = new Map<string, string>();
  for (const pair of text === "" ? [] : text.split(";")) {
    const [key = "", value, ...rest] = pair.split("=");
    if (value === undefined || rest.length > 0)
      throw new CniError(INTERNAL, `ARGS: invalid pair ${JSON.stringify(pair)}`);
    if (key === "IgnoreUnknown") ignoreUnknown = asBoolean(value);
    pairs.set(key, value);
  }
  const unknown = [...pairs].filter(([key]) => !known.includes(key));
  if (unknown.length > 0 && !ignoreUnknown) {
    const list = unknown.map(([key, value]) => JSON.stringify(`${key}=${value}`)).join(" ");
    throw new CniError(INTERNAL, `ARGS: unknown args [${list}]`);
  }
  const requested = pairs.get("IP");
  const ip = requested === undefined || requested === "" ? undefined : tryParseAddress(requested);
  if (requested !== undefined && requested !== "" && ip === undefined)
    throw new CniError(
      INTERNAL,
      `ARGS: error parsing value of pair "IP=${requested}": invalid IP address: ${requested}`,
    );
  return {
    podName: pairs.get("K8S_POD_NAME") || undefined,
    podNamespace: pairs.get("K8S_POD_NAMESPACE") || undefined,
    podUid: pairs.get("K8S_POD_UID") || undefined,
    testNamespace: pairs.get("CNI_TEST_NAMESPACE") || undefined,
    ip,
  };
}

function asBoolean(value: string): boolean {
  const lower = value.toLowerCase();
  if (lower === "1" || lower === "true") return true;
  if (lower === "0" || lower === "false") return false;
  throw new CniError(INTERNAL, `ARGS: error parsing value of pair "IgnoreUnknown=${value}": want 1, true, 0 or false`);
}
