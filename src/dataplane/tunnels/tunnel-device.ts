// Creates and corrects a tunnel device and its address. The device stays when Felix stops, so that traffic continues.
import { hasErrno, type Link, type LinkKind, type Rtnetlink, type VxlanSettings } from "../../kernel/index.ts";
import { addressBits, type IpAddress, ipVersion } from "../../lib/ip/ip.ts";
import { describeError, type Logger } from "../../lib/log/log.ts";
import type { ApplyOutcome, Reconciler } from "../loop/manager.ts";

export interface DesiredDevice {
  readonly name: string;
  readonly type: LinkKind;
  readonly mtu: number;
  readonly mac?: string;
  /** The only address of its family on the device. */
  readonly address: IpAddress;
}

export interface TunnelDeviceOptions {
  readonly label: string;
  /** The setting that requires the device, for the log. */
  readonly setting: string;
  readonly kernel: Pick<Rtnetlink, "links" | "addresses">;
  /** Returns undefined while the properties are not known. */
  readonly desired: () => DesiredDevice | undefined;
  readonly logger: Logger;
  /** Called after each check of the device, for example to disable offloads. */
  readonly onReady?: (name: string) => void;
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
    const desired = this.#options.desired();
    if (desired === undefined) return {};
    const text = JSON.stringify(desired);
    const now = performance.now();
    if (text === this.#checked && now - this.#checkedAt < CHECK_MS)
      return { againInMs: CHECK_MS - (now - this.#checkedAt) };
    try {
      const corrected = this.#ensure(desired);
      this.#lastError = "";
      if (text === this.#checked && corrected.length > 0)
        this.#options.logger.warn("another program changed a tunnel device; restored it", {
          device: desired.name,
          corrected: corrected.join(", "),
        });
    } catch (error) {
      // If the kernel lacks the device type, this is logged once. The module may be loaded later.
      const reason = describeError(error);
      const isMissing = hasErrno(error, "EOPNOTSUPP");
      if (reason !== this.#lastError)
        this.#options.logger.warn(
          isMissing
            ? "kernel does not support the tunnel; packets to other nodes are not encapsulated"
            : "configuring a tunnel device failed; retrying",
          { device: desired.name, kind: desired.type.kind, setting: this.#options.setting, error: reason },
        );
      this.#lastError = reason;
      return { againInMs: isMissing ? UNSUPPORTED_RETRY_MS : RETRY_MS };
    }
    this.#checked = text;
    this.#checkedAt = now;
    return { againInMs: CHECK_MS };
  }

  /** @returns the properties that were corrected */
  #ensure(desired: DesiredDevice): readonly string[] {
    const corrected: string[] = [];
    const { links, addresses } = this.#options.kernel;
    let link = links.get(desired.name);
    if (link !== undefined && !isSameDevice(link, desired)) {
      this.#options.logger.info("recreating a tunnel device with other settings", { device: desired.name });
      links.delete(desired.name);
      link = undefined;
    }
    if (link === undefined) {
      const { name, type, mtu, mac } = desired;
      try {
        links.create({ name, type, mtu, mac });
      } catch (error) {
        if (!hasErrno(error, "EEXIST")) throw error;
      }
      link = links.get(desired.name);
      if (link === undefined) throw new Error(`device ${desired.name} does not exist after its creation`);
      corrected.push("the device itself");
    }
    if (link.mtu !== desired.mtu) {
      links.set(desired.name, { mtu: desired.mtu });
      corrected.push(`MTU ${link.mtu}`);
    }
    if (!link.isUp) {
      links.set(desired.name, { up: true });
      corrected.push("switched off");
    }
    const version = ipVersion(desired.address);
    const length = addressBits(version);
    let hasOurs = false;
    for (const found of addresses.list({ version, link: link.index })) {
      if (found.address === desired.address && found.length === length) hasOurs = true;
      else if (found.scope !== "link") {
        addresses.delete({ link: link.index, address: found.address, length: found.length });
        corrected.push(`address ${found.address}`);
      }
    }
    if (!hasOurs) {
      addresses.replace({ link: link.index, address: desired.address, length, noDuplicateDetection: version === 6 });
      corrected.push("its address");
    }
    this.#options.onReady?.(desired.name);
    return corrected;
  }
}

/** Compares the properties that cannot be changed. */
function isSameDevice(link: Link, desired: DesiredDevice): boolean {
  if (link.kind !== desired.type.kind) return false;
  if (desired.mac !== undefined && link.mac?.toLowerCase() !== desired.mac.toLowerCase()) return false;
  if (desired.type.kind !== "vxlan") return true;
  const settings = desired.type as VxlanSettings & { readonly kind: "vxlan" };
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
