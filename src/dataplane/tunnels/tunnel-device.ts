// Tunnel devices: made, corrected, given their address. The kernel keeps them when we end, so traffic goes on.
import { hasErrno, type Link, type LinkKind, type RouteKernel, type VxlanSettings } from "../../kernel/index.ts";
import { addressBits, type IpAddress, ipVersion } from "../../lib/ip.ts";
import { describeError, type Logger } from "../../lib/log.ts";
import type { ApplyOutcome, Reconciler } from "../manager.ts";

export interface WantedDevice {
  readonly name: string;
  readonly type: LinkKind;
  readonly mtu: number;
  readonly mac?: string;
  /** The device's only address of its family. */
  readonly address: IpAddress;
}

export interface TunnelDeviceOptions {
  readonly label: string;
  /** What asks for it, for the log. */
  readonly setting: string;
  readonly kernel: Pick<RouteKernel, "links" | "addresses">;
  /** What the device shall be now; nothing while that is not known. */
  readonly wanted: () => WantedDevice | undefined;
  readonly logger: Logger;
  /** Work on a device that was made or found good, such as switching off offloads. */
  readonly afterwards?: (name: string) => void;
}

const CHECK_MS = 10_000;
const RETRY_MS = 1000;
const UNSUPPORTED_RETRY_MS = 10_000;

export class TunnelDevice implements Reconciler {
  readonly name: string;
  readonly #options: TunnelDeviceOptions;
  #checkedAt = Number.NEGATIVE_INFINITY;
  #checked = "";
  #lastError = "";

  constructor(options: TunnelDeviceOptions) {
    this.#options = options;
    this.name = options.label;
  }

  queueResync(): void {
    this.#checkedAt = Number.NEGATIVE_INFINITY;
  }

  apply(): ApplyOutcome {
    const wanted = this.#options.wanted();
    if (wanted === undefined) return {};
    const text = JSON.stringify(wanted);
    const now = performance.now();
    if (text === this.#checked && now - this.#checkedAt < CHECK_MS)
      return { againInMs: CHECK_MS - (now - this.#checkedAt) };
    try {
      const corrected = this.#ensure(wanted);
      this.#lastError = "";
      if (text === this.#checked && corrected.length > 0)
        this.#options.logger.warn("tunnel device was not as we left it; repaired", {
          device: wanted.name,
          corrected: corrected.join(", "),
        });
    } catch (error) {
      // A kernel without the device type stays so: said once, tried now and then, in case a module comes.
      const reason = describeError(error);
      const isMissing = hasErrno(error, "EOPNOTSUPP");
      if (reason !== this.#lastError)
        this.#options.logger.warn(
          isMissing
            ? "this kernel has no such tunnel: until its module is there, packets to other nodes go where the host's other routes lead, unwrapped"
            : "tunnel device cannot be set up; trying again",
          { device: wanted.name, kind: wanted.type.kind, setting: this.#options.setting, error: reason },
        );
      this.#lastError = reason;
      return { againInMs: isMissing ? UNSUPPORTED_RETRY_MS : RETRY_MS };
    }
    this.#checked = text;
    this.#checkedAt = now;
    return { againInMs: CHECK_MS };
  }

  /** @returns what had to be put right */
  #ensure(wanted: WantedDevice): readonly string[] {
    const corrected: string[] = [];
    const { links, addresses } = this.#options.kernel;
    let link = links.get(wanted.name);
    if (link !== undefined && !isSameDevice(link, wanted)) {
      this.#options.logger.info("tunnel device is made anew with other settings", { device: wanted.name });
      links.delete(wanted.name);
      link = undefined;
    }
    if (link === undefined) {
      const { name, type, mtu, mac } = wanted;
      try {
        links.create({ name, type, mtu, ...(mac === undefined ? {} : { mac }) });
      } catch (error) {
        if (!hasErrno(error, "EEXIST")) throw error;
      }
      link = links.get(wanted.name);
      if (link === undefined) throw new Error(`device ${wanted.name} is not there after it was made`);
      corrected.push("the device itself");
    }
    if (link.mtu !== wanted.mtu) {
      links.set(wanted.name, { mtu: wanted.mtu });
      corrected.push(`MTU ${link.mtu}`);
    }
    if (!link.isUp) {
      links.set(wanted.name, { up: true });
      corrected.push("switched off");
    }
    const version = ipVersion(wanted.address);
    const length = addressBits(version);
    let hasOurs = false;
    for (const found of addresses.list({ version, link: link.index })) {
      if (found.address === wanted.address && found.length === length) hasOurs = true;
      else if (found.scope !== "link") {
        addresses.delete({ link: link.index, address: found.address, length: found.length });
        corrected.push(`address ${found.address}`);
      }
    }
    if (!hasOurs) {
      addresses.replace({ link: link.index, address: wanted.address, length, noDuplicateDetection: version === 6 });
      corrected.push("its address");
    }
    this.#options.afterwards?.(wanted.name);
    return corrected;
  }
}

/** A device whose fixed properties differ can only be replaced. */
function isSameDevice(link: Link, wanted: WantedDevice): boolean {
  if (link.kind !== wanted.type.kind) return false;
  if (wanted.mac !== undefined && link.mac?.toLowerCase() !== wanted.mac.toLowerCase()) return false;
  if (wanted.type.kind !== "vxlan") return true;
  const settings = wanted.type as VxlanSettings & { readonly kind: "vxlan" };
  const found = link.vxlan;
  return (
    found !== undefined &&
    found.id === settings.id &&
    found.port === settings.port &&
    found.device === settings.device &&
    found.local === settings.local &&
    found.learning === settings.learning
  );
}
