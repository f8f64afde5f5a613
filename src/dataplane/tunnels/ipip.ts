// Configures the IPIP device `tunl0`. The kernel creates one in each network namespace when the module `ipip` is loaded.
import type { Rtnetlink } from "../../kernel/index.ts";
import type { IpAddress } from "../../lib/ip/ip.ts";
import type { Logger } from "../../lib/log/log.ts";
import { TunnelDevice } from "./tunnel-device.ts";

export const IPIP_DEVICE = "tunl0";

export function createIpipDevice(options: {
  readonly mtu: number;
  readonly address: IpAddress;
  readonly kernel: Pick<Rtnetlink, "links" | "addresses">;
  readonly logger: Logger;
  readonly onReady?: (device: string) => void;
}): TunnelDevice {
  const { mtu, address, kernel, logger, onReady } = options;
  return new TunnelDevice({
    label: "IPIP device",
    setting: "IpInIpEnabled, or ipipMode of an IPPool",
    kernel,
    logger,
    desired: () => ({ name: IPIP_DEVICE, mtu, address, type: { kind: "ipip" } }),
    onReady,
  });
}
