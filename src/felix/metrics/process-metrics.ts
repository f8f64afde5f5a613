// Metrics of this process from /proc, with the standard names of Prometheus clients.
import { readdirSync, readFileSync } from "node:fs";
import type { MetricsRegistry } from "../../lib/metrics.ts";

const TICKS_PER_SECOND = 100;
const PAGE_BYTES = 4096;

export function processMetrics(registry: MetricsRegistry, proc = "/proc/self"): void {
  const stat = () => {
    // The process name in parentheses may contain spaces, so fields are counted after it.
    const text = readFileSync(`${proc}/stat`, "utf8");
    return text
      .slice(text.lastIndexOf(")") + 2)
      .split(" ")
      .map(Number);
  };
  const limit = (name: string) =>
    Number(new RegExp(`^${name}\\s+(\\d+)`, "m").exec(readFileSync(`${proc}/limits`, "utf8"))?.[1] ?? -1);
  const one = (name: string, help: string, type: "counter" | "gauge", read: () => number) =>
    registry.collect(name, help, type, () => {
      try {
        return [[{}, read()]];
      } catch {
        return []; // no such file here
      }
    });
  one("process_cpu_seconds_total", "User and system CPU time in seconds.", "counter", () => {
    const fields = stat();
    return ((fields[11] ?? 0) + (fields[12] ?? 0)) / TICKS_PER_SECOND;
  });
  one("process_virtual_memory_bytes", "Virtual memory in bytes.", "gauge", () => stat()[20] ?? 0);
  one("process_resident_memory_bytes", "Resident memory in bytes.", "gauge", () => (stat()[21] ?? 0) * PAGE_BYTES);
  one("process_virtual_memory_max_bytes", "Limit of virtual memory in bytes.", "gauge", () =>
    limit("Max address space"),
  );
  one("process_open_fds", "Open file descriptors.", "gauge", () => readdirSync(`${proc}/fd`).length);
  one("process_max_fds", "Limit of open file descriptors.", "gauge", () => limit("Max open files"));
  one("process_start_time_seconds", "Start time of the process in seconds since 1970.", "gauge", () => {
    const boot = Number(/^btime (\d+)$/m.exec(readFileSync("/proc/stat", "utf8"))?.[1] ?? 0);
    return boot + (stat()[19] ?? 0) / TICKS_PER_SECOND;
  });
  const traffic = (column: number) => () =>
    readFileSync(`${proc}/net/dev`, "utf8")
      .split("\n")
      .slice(2)
      .reduce((sum, line) => sum + Number(line.split(":")[1]?.trim().split(/\s+/)[column] ?? 0), 0);
  one("process_network_receive_bytes_total", "Bytes received in its network namespace.", "counter", traffic(0));
  one("process_network_transmit_bytes_total", "Bytes sent in its network namespace.", "counter", traffic(8));
}
