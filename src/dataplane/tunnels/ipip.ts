// The IPIP device. `tunl0` is special: the kernel makes it with the module, one per namespace.
import type { RouteKernel } from "../../kernel/index.ts";
import type { IpAddress } from "../../lib/ip.ts";
import type { Logger } from "../../lib/log.ts";
import { TunnelDevice } from "./tunnel-device.ts";

export const IPIP_DEVICE = "tunl0";

export function createIpipDevice(options: {
  readonly mtu: number;
  readonly address: IpAddress;
  readonly kernel: Pick<RouteKernel, "links" | "addresses">;
  readonly logger: Logger;
  readonly afterwards?: (device: string) => void;
}): TunnelDevice {
  const { mtu, address, kernel, logger, afterwards } = options;
  return new TunnelDevice({
    label: "IPIP device",
    setting: "IpInIpEnabled, or ipipMode of an IPPool",
    kernel,
    logger,
    wanted: () => ({ name: IPIP_DEVICE, mtu, address, type: { kind: "ipip" } }),
    ...(afterwards === undefined ? {} : { afterwards }),
  });
}
