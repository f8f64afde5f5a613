// Starts the certificates controller for the programs that the environment lists (CALICO_CERTIFICATES).
import type { KubeApi } from "../../datastore/index.ts";
import type { Logger } from "../../lib/log/log.ts";
import { Certificates, type CertificateSet, type CertificatesOptions } from "./controller.ts";
import { type CertificateUser, TYPHA_CERTIFICATES } from "./names.ts";

export type CertificateTimings = Pick<CertificatesOptions, "now" | "checkMs" | "rotation">;

export function startCertificates(
  parts: {
    readonly api: KubeApi;
    readonly namespace: string;
    readonly users: readonly CertificateUser[];
    readonly log: Logger;
    readonly timings?: CertificateTimings;
  },
  signal: AbortSignal,
): Promise<void>[] {
  const { api, namespace, users, log, timings } = parts;
  if (users.length === 0) return [];
  const sets = users.map((user) => SETS[user](namespace));
  return [new Certificates({ api, namespace, sets, log, ...timings }).run(signal)];
}

const SETS: Readonly<Record<CertificateUser, (namespace: string) => CertificateSet>> = { typha: typhaSet };

function typhaSet(namespace: string): CertificateSet {
  const { bundle, server, client } = TYPHA_CERTIFICATES;
  const service = "calico-typha";
  const dnsNames = [service, `${service}.${namespace}`, `${service}.${namespace}.svc`];
  return {
    bundle,
    certificates: [
      { secret: server.secret, request: { commonName: server.commonName, dnsNames, usages: ["server"] } },
      { secret: client.secret, request: { commonName: client.commonName, dnsNames: [], usages: ["client"] } },
    ],
  };
}
