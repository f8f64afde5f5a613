// The interface to the kernel that the dataplane needs. open-kernel.ts opens the real kernel; tests replace parts of it.
import type {
  Conntrack,
  EventMonitorOptions,
  OpenNeighbourResponder,
  Rtnetlink,
  Sysctls,
  TrafficControl,
} from "../../kernel/index.ts";
import type { RulesKernel } from "../rule-backend.ts";
import type { SweepTargets } from "../cleanup/sweeper.ts";
import type { WireguardKernel } from "../wireguard/wireguard-device.ts";

export interface LinuxKernel {
  readonly rules: RulesKernel;
  readonly routes: Rtnetlink;
  readonly conntrack: Pick<Conntrack, "deleteByAddress">;
  readonly sysctls: Sysctls;
  /** Undefined in tests without WireGuard. */
  readonly wireguard?: WireguardKernel;
  /** Undefined: bandwidth limits are ignored. */
  readonly trafficControl?: TrafficControl;
  /** The kernel's error if it does not support NFLOG; undefined if it does, or flow logs are off. */
  readonly nflogError?: string;
  /** Disables checksum offload of a tunnel device. Defined only if this kernel computes wrong checksums inside tunnels. */
  readonly disableChecksumOffload?: (device: string) => void;
  /** Where the other backend may have left rules. */
  readonly leftovers?: SweepTargets;
  /** Returns the backend that Felix would select now; undefined if the configuration fixes it. */
  readonly currentBackend?: () => RulesKernel["backend"];
  /** The network namespace whose events are received; by default that of this thread. */
  readonly namespace?: { readonly fd: number };
  /** Reports gratuitous ARP packets, which announce virtual machines that migrated to this node. */
  readonly watchGratuitousArp?: (link: number, onReceived: () => void) => Disposable;
  /** Replies to ARP and neighbour discovery for addresses of workloads. */
  readonly openNeighbourResponder?: OpenNeighbourResponder;
  /** For tests in which the source of events fails. */
  readonly openEvents?: (options: EventMonitorOptions) => AsyncDisposable;
}
