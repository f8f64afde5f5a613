// Creates the mirrors of Kubernetes objects that Felix needs if the datastore is etcd: network policies, and profiles for
// namespaces and service accounts.
import { createHash } from "node:crypto";
import { type Client, Informer, type KubeApi, type KubeObject } from "../datastore/index.ts";
import type { Logger } from "../lib/log/log.ts";
import {
  networkPolicyFromKubernetes,
  profileFromNamespace,
  profileFromServiceAccount,
  type Resource,
} from "../model/index.ts";
import { Mirror } from "./mirror.ts";

const POLICY_PREFIX = "knp.default.";
const MAX_NAME = 253;

interface CopyOptions {
  readonly api: KubeApi;
  readonly client: Client;
  readonly log: Logger;
  readonly reconcilerPeriodMs?: number;
  readonly workers?: number;
}

interface Copies {
  readonly source: { run(signal: AbortSignal): Promise<void> };
  readonly mirror: { run(signal: AbortSignal): Promise<void> };
}

export function policyCopies(options: CopyOptions): Copies {
  const source = informer(options, "/apis/networking.k8s.io/v1/networkpolicies");
  const mirror = new Mirror({
    ...options,
    name: "policy",
    kind: "NetworkPolicy",
    source,
    convert: (object) => {
      const policy = { ...(object as unknown as Resource), kind: "KubernetesNetworkPolicy" } as Resource;
      const report = (problem: string) =>
        options.log.warn("rule of a NetworkPolicy cannot be converted; it allows nothing", {
          policy: `${object.metadata.namespace}/${object.metadata.name}`,
          problem,
        });
      const copy = networkPolicyFromKubernetes(policy, report);
      return { ...copy, metadata: { ...copy.metadata, name: shortenName(copy.metadata.name) } };
    },
    owns: ({ metadata }) => metadata.name.startsWith(POLICY_PREFIX),
  });
  return { source, mirror };
}

export function namespaceCopies(options: CopyOptions): Copies {
  const source = informer(options, "/api/v1/namespaces");
  const mirror = new Mirror({
    ...options,
    name: "namespace",
    kind: "Profile",
    source,
    // The profile of a terminating namespace stays unchanged until the namespace is deleted.
    convert: (object) => (phaseOf(object) === "Terminating" ? undefined : copyOf(profileFromNamespace(object))),
    owns: ({ metadata }) => metadata.name.startsWith("kns."),
  });
  return { source, mirror };
}

export function serviceAccountCopies(options: CopyOptions): Copies {
  const source = informer(options, "/api/v1/serviceaccounts");
  const mirror = new Mirror({
    ...options,
    name: "serviceaccount",
    kind: "Profile",
    source,
    convert: (object) => copyOf(profileFromServiceAccount(object)),
    owns: ({ metadata }) => metadata.name.startsWith("ksa."),
  });
  return { source, mirror };
}

function informer({ api, log }: CopyOptions, path: string): Informer<KubeObject> {
  return new Informer({ api, path, keep: (object) => object, log });
}

/** Keeps only the name: UID and other metadata belong to the Kubernetes object. */
const copyOf = ({ metadata: { name }, ...rest }: Resource): Resource => ({ ...rest, metadata: { name } });

const phaseOf = (object: KubeObject & { readonly status?: { readonly phase?: string } }): string | undefined =>
  object.status?.phase;

/** Cuts a name that is too long with its prefix and appends a hash of the full name. */
export function shortenName(name: string): string {
  if (name.length <= MAX_NAME) return name;
  const hash = createHash("sha256").update(name).digest("hex").slice(0, 16);
  return `${name.slice(0, MAX_NAME - hash.length - 1).replace(/[.-]+$/, "")}-${hash}`;
}
