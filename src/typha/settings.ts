// Reads the settings of Typha's clients from the environment: <PREFIX>TYPHA<FIELD>. Felix uses the prefix FELIX_, the BGP
// service CONFD_, FELIX_ and CALICO_, the tunnel allocator and the status reporter FELIX_ and CALICO_.
import { checkTlsSettings, type TlsSettings } from "./tls.ts";

export interface TyphaSettings {
  readonly address?: string;
  readonly serviceName?: string;
  readonly namespace: string;
  readonly readTimeoutMs: number;
  readonly writeTimeoutMs: number;
  readonly tls?: TlsSettings;
}

export const BGP_PREFIXES = ["CONFD_", "FELIX_", "CALICO_"] as const;
export const NODE_PREFIXES = ["FELIX_", "CALICO_"] as const;

/** @returns undefined if neither an address nor a service is set: Typha is not used */
export function typhaSettings(
  env: Readonly<Record<string, string | undefined>>,
  prefixes: readonly string[],
): TyphaSettings | undefined {
  const read = (field: string): string | undefined => {
    for (const prefix of prefixes) {
      const value = env[`${prefix}TYPHA${field}`];
      if (value !== undefined && value !== "" && value.toLowerCase() !== "none") return value;
    }
    return undefined;
  };
  const address = read("ADDR");
  const serviceName = read("K8SSERVICENAME");
  if (address === undefined && serviceName === undefined) return undefined;
  const tls = checkTlsSettings(
    {
      keyFile: read("KEYFILE") ?? "",
      certFile: read("CERTFILE") ?? "",
      caFile: read("CAFILE") ?? "",
      commonName: read("CN"),
      uriSan: read("URISAN"),
    },
    "server",
  );
  return {
    address,
    serviceName,
    namespace: read("K8SNAMESPACE") ?? "kube-system",
    readTimeoutMs: seconds(read("READTIMEOUT"), 30),
    writeTimeoutMs: seconds(read("WRITETIMEOUT"), 10),
    tls,
  };
}

function seconds(text: string | undefined, defaultSeconds: number): number {
  const value = text === undefined ? defaultSeconds : Number(text.replace(/s$/, ""));
  return (Number.isFinite(value) && value > 0 ? value : defaultSeconds) * 1000;
}
