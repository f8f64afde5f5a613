// Determines the devices of the flowtable: interfaces of workloads, tunnels, and configured host interfaces, if they are up.
import type { Manager, ManagerMessage } from "../loop/manager.ts";
import type { EndpointRegistry } from "./endpoint-registry.ts";

const TUNNELS: ReadonlySet<string> = new Set(["vxlan.calico", "vxlan-v6.calico", "tunl0"]);

export class FlowtableDevices implements Manager {
  readonly name = "flowtable devices";
  readonly #registry: EndpointRegistry;
  readonly #isHostDevice: (name: string) => boolean;
  readonly #set: (devices: ReadonlySet<string>) => void;
  readonly #dirty: Set<string>;
  #isStale = true;

  constructor(
    registry: EndpointRegistry,
    isHostDevice: (name: string) => boolean,
    set: (devices: ReadonlySet<string>) => void,
  ) {
    this.#registry = registry;
    this.#isHostDevice = isHostDevice;
    this.#set = set;
    this.#dirty = registry.watchWorkloads();
  }

  onUpdate(message: ManagerMessage): void {
    if (message.type === "interfaceState") this.#isStale = true;
  }

  apply(): void {
    if (!this.#isStale && this.#dirty.size === 0) return;
    this.#isStale = false;
    this.#dirty.clear();
    const devices = new Set<string>();
    for (const [name, { state }] of this.#registry.interfaces)
      if (state === "up" && (this.#registry.activeWorkloads.has(name) || TUNNELS.has(name) || this.#isHostDevice(name)))
        devices.add(name);
    this.#set(devices);
  }
}
