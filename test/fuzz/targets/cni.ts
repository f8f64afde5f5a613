// Targets for bytes from a container runtime, another CNI plugin, or the CNI service's client and server.
import { parsePodOptions, withAnnotations } from "../../../src/cni/request/annotations.ts";
import { CniError } from "../../../src/cni/error.ts";
import { parseNetConf } from "../../../src/cni/request/net-conf.ts";
import { parseRequest } from "../../../src/cni/request/request.ts";
import { parseResult, renderResult } from "../../../src/cni/request/result.ts";
import { parseServiceRequest } from "../../../src/cni/service/service.ts";
import { parseReply } from "../../../src/cni/service/client.ts";
import { parseInterfaceAlias } from "../../../src/model/interface-owner.ts";
import { JsonReader, WrongShape } from "../../../src/lib/encoding/json-reader.ts";
import { tryParseAddress } from "../../../src/lib/ip/ip.ts";
import { bytes } from "../structure/bytes.ts";
import { json } from "../structure/json.ts";
import { type FuzzTarget, require, requireEqual, textOf } from "../target.ts";

/** Stands for a token or a password in the corpus. No error may quote it from a field that holds secrets. */
const SECRET = "sEcReTvAlUe";

const NET_CONF_WORDS = [
  "k8s_auth_token",
  "etcd_endpoints",
  "ipam",
  "policy",
  "cniVersion",
  "prevResult",
  "K8S_POD_NAME=",
  "IgnoreUnknown=1;",
  "CNI_ARGS",
  "CNI_COMMAND",
  "GC",
  "0.3.1",
  "service_socket",
];

/** The input has the form of a request to the CNI service: the environment as JSON, a line break, the configuration. */
function readRequest(input: Uint8Array): boolean {
  const content = textOf(input);
  try {
    const parsed = parseServiceRequest(content);
    if (parsed === undefined) return false;
    const { env, stdin } = parsed;
    for (const program of ["calico", "calico-ipam"] as const) {
      const request = parseRequest(program, env, stdin);
      require(request.ifName.length <= 15, "an interface name has at most 15 characters");
      const conf = parseNetConf(request.config);
      require(conf.numQueues >= 1 && Number.isSafeInteger(conf.mtu), "numbers are whole");
    }
    return true;
  } catch (error) {
    // Checked only if the secret is the value of a field for secrets, and of no other field.
    const everywhere = content.split(SECRET).length - 1;
    const inSecrets = content.split(new RegExp(`"k8s_auth_token"\\s*:\\s*"?${SECRET}`)).length - 1;
    if (error instanceof Error && everywhere === inSecrets)
      require(!error.message.includes(SECRET), `the error shows a secret: ${error.message}`);
    throw error;
  }
}

function readResult(input: Uint8Array): boolean {
  let document: unknown;
  try {
    document = JSON.parse(textOf(input));
  } catch {
    return false; // not JSON: the caller rejects it before this parser
  }
  const result = parseResult(document);
  for (const { address } of result.ips)
    require(tryParseAddress(address.address) === address.address, `${address.address} is canonical`);
  for (const version of ["0.3.1", "1.0.0"] as const)
    requireEqual(
      parseResult(JSON.parse(JSON.stringify(renderResult(result, version)))).ips.map(({ address }) => address),
      result.ips.map(({ address }) => address),
      `addresses printed as version ${version} and parsed again`,
    );
  return true;
}

/** The client's parser of a reply. */
function readReply(input: Uint8Array): boolean {
  const reply = parseReply(input);
  if (reply === undefined || reply === "broken") return false;
  require(input.at(-1) === 10, "a complete reply ends with a line break");
  const content = textOf(input).replace(/^ +/, "");
  require(content === `${reply.code}\n${reply.output}\n`, "the output is what stands between head and end");
  return true;
}

function readAnnotations(input: Uint8Array): boolean {
  let document: unknown;
  try {
    document = JSON.parse(textOf(input));
  } catch {
    return false; // the API server sends JSON
  }
  const pod = new JsonReader(document).map("pod") ?? {};
  const namespace = new JsonReader(document).map("namespace") ?? {};
  const options = parsePodOptions(pod);
  for (const list of [options.ipAddrs, options.ipAddrsNoIpam])
    require((list?.length ?? 1) <= 2, "one address per family");
  if (options.hwAddr !== undefined)
    require(/^([0-9a-f]{2}:){5}[0-9a-f]{2}$/.test(options.hwAddr), `MAC ${options.hwAddr}`);
  const settings = { type: "calico-ipam", assignIpv4: true, assignIpv6: false, ipv4Pools: [], ipv6Pools: [] };
  const ipam = withAnnotations(settings, pod, namespace);
  require(ipam.ipv4Pools.every((pool) => typeof pool === "string"), "pools are texts");
  for (const alias of Object.values(pod)) parseInterfaceAlias(alias);
  return true;
}

export const targets: Readonly<Record<string, FuzzTarget>> = {
  "cni-request": {
    about: "environment, CNI_ARGS and standard input of the plugin; requests to the CNI service",
    structure: json,
    dictionary: NET_CONF_WORDS,
    rejections: [CniError],
    run: readRequest,
  },
  "cni-result": {
    about: "results of IPAM plugins and of plugins before ours",
    structure: json,
    dictionary: [
      "ips",
      "ip4",
      "address",
      "10.0.0.1/32",
      "::ffff:10.0.0.1/128",
      "gateway",
      "routes",
      "dst",
      "0.0.0.0/0",
    ],
    rejections: [CniError],
    run: readResult,
  },
  "cni-service-reply": {
    about: "replies of the CNI service to the plugin",
    structure: bytes,
    dictionary: ["0\n", "1\n", "  ", '{"declined":"x"}\n', "\n"],
    rejections: [],
    run: readReply,
  },
  "pod-annotations": {
    about: "annotations of pods and namespaces, as the CNI plugin reads them",
    structure: json,
    dictionary: [
      "cni.projectcalico.org/ipAddrs",
      "cni.projectcalico.org/hwAddr",
      '["10.0.0.1"]',
      "IPv4",
      "floatingIPs",
    ],
    rejections: [CniError, WrongShape],
    run: readAnnotations,
  },
};
