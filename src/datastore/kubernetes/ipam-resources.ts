// Converts IPAM blocks, affinities, handles and configuration to custom resources. Names are computed from CIDRs and
// handle IDs; the exact values are in the spec. An object is marked before it is deleted, so that a concurrent writer sees
// the mark instead of a missing object.
import { type Cidr, ipVersion, tryParseCidr } from "../../lib/ip/ip.ts";
import { describeJson, parseLosslessJson, stringifyLosslessJson } from "../../lib/encoding/lossless-json.ts";
import {
  type BlockAffinityKey,
  type BlockKey,
  decodeValue,
  encodeValue,
  type IpamConfigKey,
  type IpamHandleKey,
  type StoredQuery,
} from "../../model/index.ts";
import type { Entry, Stored } from "../datastore.ts";
import { UnreadableEntry } from "../errors.ts";
import type { KubeObject } from "./api-client.ts";
import type { Collection, Selection } from "./collection.ts";
import { type ApiGroup, CRD_V1, hideMetadata } from "./custom-resources.ts";

type Spec = Readonly<Record<string, unknown>>;
type CustomObject = KubeObject & { readonly spec?: Spec };
const MAX_NAME = 253;
const HOSTNAME_HASH = "projectcalico.org/hostname-hash";

abstract class IpamCollection {
  readonly lossless = true;
  constructor(
    readonly group: ApiGroup,
    readonly kind: string,
    readonly plural: string,
    readonly marked = true,
  ) {}

  get path(): string {
    return `/apis/${this.group}/${this.plural}`;
  }
  select(_query: StoredQuery): Selection {
    return { path: this.path };
  }
  createPath(): string {
    return this.path;
  }
  isMarked(object: CustomObject): boolean {
    return String(object.spec?.["deleted"]) === "true";
  }
  mark(object: CustomObject): KubeObject {
    const deleted = this.group === CRD_V1 && this.plural === "blockaffinities" ? "true" : true;
    return { ...object, spec: { ...object.spec, deleted } } as KubeObject;
  }

  protected object(name: string, entry: Entry, spec: Spec, labels: Readonly<Record<string, string>> = {}): KubeObject {
    const metadata = this.group === CRD_V1 ? hideMetadata({ name, labels }, false) : { labels };
    return {
      apiVersion: this.group,
      kind: this.kind,
      metadata: {
        ...metadata,
        name,
        ...(entry.uid === undefined ? {} : { uid: entry.uid }),
        ...(entry.revision === undefined ? {} : { resourceVersion: entry.revision }),
      },
      spec,
    } as KubeObject;
  }

  protected origin(object: KubeObject): { revision: string; uid?: string } {
    const { resourceVersion = "", uid } = object.metadata;
    return { revision: resourceVersion, uid };
  }

  /** Returns the spec as JSON for the model's codecs, with renamed fields. */
  protected codecText(object: CustomObject, rename: Readonly<Record<string, string>>): string {
    const spec = object.spec ?? {};
    return stringifyLosslessJson(
      Object.fromEntries(Object.entries(spec).map(([name, value]) => [rename[name] ?? name, value])),
    );
  }

  protected unreadable(object: CustomObject): never {
    const cidr = describeJson(object.spec?.["cidr"]);
    throw new UnreadableEntry(`${this.path}/${object.metadata.name}`, `cidr: ${cidr} is not a CIDR`);
  }
}

export class Blocks extends IpamCollection implements Collection<BlockKey> {
  constructor(group: ApiGroup) {
    super(group, "IPAMBlock", "ipamblocks");
  }
  keyOf(object: CustomObject): BlockKey | undefined {
    const cidr = tryParseCidr(String(object.spec?.["cidr"]));
    return cidr === undefined ? undefined : { type: "block", cidr };
  }
  itemPath(key: BlockKey): string {
    return `${this.path}/${cidrName(key.cidr)}`;
  }
  decode(object: CustomObject): Stored<BlockKey> {
    const key = this.keyOf(object) ?? this.unreadable(object);
    const text = this.codecText(object, { affinityClaimTime: "affinity_claim_time" });
    return { key, value: decodeValue(key, text), ...this.origin(object) };
  }
  encode(entry: Entry<BlockKey>): KubeObject {
    const { affinity_claim_time: affinityClaimTime, affinity, ...stored } = specOf(encodeValue(entry.key, entry.value));
    return this.object(cidrName(entry.key.cidr), entry, {
      ...stored,
      ...(affinity === null ? {} : { affinity }),
      ...(affinityClaimTime === undefined ? {} : { affinityClaimTime }),
      strictAffinity: false,
    });
  }
}

export class Affinities extends IpamCollection implements Collection<BlockAffinityKey> {
  constructor(group: ApiGroup) {
    super(group, "BlockAffinity", "blockaffinities");
  }
  /** Selects a host's affinities by label, and those without a label, which older releases wrote. */
  selectForList(query: StoredQuery): readonly Selection[] {
    const { path } = this;
    if (query.type !== "blockAffinity" || query.host === undefined) return [{ path }];
    return [
      { path, labelSelector: `${HOSTNAME_HASH}=${hostnameHash(query.host)}` },
      { path, labelSelector: `!${HOSTNAME_HASH}` },
    ];
  }
  keyOf(object: CustomObject): BlockAffinityKey | undefined {
    const spec = object.spec ?? {};
    const cidr = tryParseCidr(spec["cidr"]);
    const affinityType = spec["type"] === "virtual" ? "virtual" : "host";
    const host = typeof spec["node"] === "string" ? spec["node"] : "";
    return cidr === undefined ? undefined : { type: "blockAffinity", affinityType, host, cidr };
  }
  itemPath(key: BlockAffinityKey): string {
    return `${this.path}/${affinityName(key)}`;
  }
  decode(object: CustomObject): Stored<BlockAffinityKey> {
    const state = object.spec?.["state"] ?? "";
    const key = this.keyOf(object) ?? this.unreadable(object);
    const text = stringifyLosslessJson({ state, deleted: this.isMarked(object) });
    return { key, value: decodeValue(key, text), ...this.origin(object) };
  }
  encode(entry: Entry<BlockAffinityKey>): KubeObject {
    const { host, cidr, affinityType } = entry.key;
    const { state, deleted } = entry.value;
    const labels = {
      [HOSTNAME_HASH]: hostnameHash(host),
      "projectcalico.org/affinity-type": affinityType,
      "projectcalico.org/ip-version": String(ipVersion(cidr)),
    };
    const spec = {
      cidr,
      node: host,
      state,
      ...(affinityType === "host" ? {} : { type: affinityType }),
      deleted: this.group === CRD_V1 ? String(deleted) : deleted,
    };
    return this.object(affinityName(entry.key), entry, spec, labels);
  }
}

export class Handles extends IpamCollection implements Collection<IpamHandleKey> {
  constructor(group: ApiGroup) {
    super(group, "IPAMHandle", "ipamhandles");
  }
  keyOf(object: CustomObject): IpamHandleKey {
    return { type: "ipamHandle", handleId: String(object.spec?.["handleID"] ?? object.metadata.name) };
  }
  itemPath(key: IpamHandleKey): string {
    return `${this.path}/${encodeURIComponent(key.handleId.toLowerCase())}`;
  }
  decode(object: CustomObject): Stored<IpamHandleKey> {
    const key = this.keyOf(object);
    return { key, value: decodeValue(key, this.codecText(object, {})), ...this.origin(object) };
  }
  encode(entry: Entry<IpamHandleKey>): KubeObject {
    const { handleId, block, deleted } = entry.value;
    return this.object(handleId.toLowerCase(), entry, { handleID: handleId, block, deleted });
  }
}

export class IpamConfigs extends IpamCollection implements Collection<IpamConfigKey> {
  constructor(group: ApiGroup) {
    super(
      group,
      group === CRD_V1 ? "IPAMConfig" : "IPAMConfiguration",
      group === CRD_V1 ? "ipamconfigs" : "ipamconfigurations",
      false,
    );
  }
  keyOf(object: CustomObject): IpamConfigKey | undefined {
    return object.metadata.name === "default" ? { type: "ipamConfig" } : undefined;
  }
  override isMarked(): boolean {
    return false;
  }
  itemPath(): string {
    return `${this.path}/default`;
  }
  decode(object: CustomObject): Stored<IpamConfigKey> {
    const key: IpamConfigKey = { type: "ipamConfig" };
    const text = this.codecText(object, {
      strictAffinity: "strict_affinity",
      autoAllocateBlocks: "auto_allocate_blocks",
    });
    return { key, value: decodeValue(key, text), ...this.origin(object) };
  }
  encode(entry: Entry<IpamConfigKey>): KubeObject {
    const { strictAffinity, autoAllocateBlocks, maxBlocksPerHost, kubeVirtVmAddressPersistence, ipCooldownSeconds } =
      entry.value;
    return this.object("default", entry, {
      strictAffinity,
      autoAllocateBlocks,
      ...(maxBlocksPerHost === 0 ? {} : { maxBlocksPerHost }),
      ...(kubeVirtVmAddressPersistence === undefined
        ? {}
        : { kubeVirtVMAddressPersistence: kubeVirtVmAddressPersistence }),
      ...(ipCooldownSeconds === undefined ? {} : { ipCooldownSeconds }),
    });
  }
}

const specOf = (text: string): Spec => parseLosslessJson(text) as Spec;

/** `10-65-0-128-26`. */
const cidrName = (cidr: Cidr): string => cidr.replace(/[.:/]/g, "-");

/** Returns `<host>-<cidr>`. If that is too long, the host is cut and a hash of the whole name is inserted. */
export function affinityName(key: BlockAffinityKey): string {
  const cidr = cidrName(key.cidr);
  const name = `${key.host}-${cidr}`;
  if (name.length < MAX_NAME) return name;
  const hash = new Bun.CryptoHasher("sha256").update(`${key.host}${cidr}`).digest("hex").slice(0, 11);
  return `${key.host.slice(0, MAX_NAME - 1 - cidr.length - 13)}-${hash}-${cidr}`;
}

const BASE32 = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
/** Returns a valid label value for any host name: the base32 of its SHA3-256, without padding. */
export function hostnameHash(host: string): string {
  let bits = 0;
  let held = 0;
  let text = "";
  for (const byte of new Bun.CryptoHasher("sha3-256").update(host).digest()) {
    held = (held << 8) | byte;
    for (bits += 8; bits >= 5; bits -= 5) text += BASE32[(held >> (bits - 5)) & 31];
    held &= (1 << bits) - 1;
  }
  return bits === 0 ? text : text + BASE32[(held << (5 - bits)) & 31];
}
