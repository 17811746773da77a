"""The document of ``nvidia-smi -q -x`` for one GPU, in the order and words of driver 570 (nvsmi_device_v12.dtd)."""

from __future__ import annotations

from typing import Any, Dict, List, Tuple, Union

from metalyard.virtual.tools import node
from metalyard.virtual.tools.smi_fields import fabric_state, fabric_status, yes

Gpu = Dict[str, Any]
Tree = List[Tuple[str, Union[str, "Tree"]]]

DEPRECATED = "Requested functionality has been deprecated"


def _same(value: str, *names: str) -> Tree:
    return [(name, value) for name in names]


def gpu_tree(gpu: Gpu) -> Tree:
    """Elements below one ``<gpu>``, nested."""
    domain, bus, rest = gpu["pci_address"].split(":")
    width = "{}x".format(gpu["pcie_width"])
    generation = str(gpu["pcie_generation"])
    volatile = str(gpu["ecc_volatile_uncorrectable"])
    correctable = str(gpu["ecc_volatile_correctable"])
    draw = "{:.2f} W".format(gpu["power_watts"])
    limit = "{:.2f} W".format(gpu["power_limit_watts"])
    graphics = "{} MHz".format(gpu["sm_clock_mhz"])
    memory = "{} MHz".format(gpu["memory_clock_mhz"])
    remapped = gpu["remapped_correctable"] + gpu["remapped_uncorrectable"]
    return [
        ("product_name", gpu["name"]),
        ("product_brand", "NVIDIA"),
        ("product_architecture", "Hopper"),
        ("display_mode", "Enabled"),
        ("display_attached", "No"),
        ("display_active", "Disabled"),
        ("persistence_mode", "Enabled" if node.persistent() else "Disabled"),
        ("addressing_mode", "None"),
        ("mig_mode", _same("Disabled", "current_mig", "pending_mig")),
        ("mig_devices", "\n\t\t\tNone\n\t\t"),
        ("accounting_mode", "Disabled"),
        ("accounting_mode_buffer_size", "4000"),
        ("driver_model", _same("N/A", "current_dm", "pending_dm")),
        ("serial", gpu["serial"]),
        ("uuid", gpu["uuid"]),
        ("minor_number", str(gpu["index"])),
        ("vbios_version", gpu["vbios"]),
        ("multigpu_board", "No"),
        ("board_id", f"0x{bus.lower()}00"),
        ("board_part_number", "692-2G520-0200-000"),
        ("gpu_part_number", "2330-885-A1"),
        ("gpu_fru_part_number", "N/A"),
        (
            "platformInfo",
            [
                *_same("N/A", "chassis_serial_number", "slot_number", "tray_index", "host_id"),
                ("peer_type", "Switch Connected"),
                ("module_id", str(gpu["index"] + 1)),
                ("gpu_fabric_guid", "0x{:016x}".format(int(gpu["serial"]))),
            ],
        ),
        (
            "inforom_version",
            [
                ("img_version", "G520.0200.00.05"),
                ("oem_object", "2.1"),
                ("ecc_object", "7.16"),
                ("pwr_object", "N/A"),
            ],
        ),
        ("inforom_bbx_flush", _same("N/A", "latest_timestamp", "latest_duration")),
        ("gpu_operation_mode", _same("N/A", "current_gom", "pending_gom")),
        ("c2c_mode", "Disabled"),
        (
            "gpu_virtualization_mode",
            [("virtualization_mode", "None"), *_same("N/A", "host_vgpu_mode", "vgpu_heterogeneous_mode")],
        ),
        ("gpu_reset_status", _same(DEPRECATED, "reset_required", "drain_and_reset_recommended")),
        ("gpu_recovery_action", gpu["recovery_action"]),
        ("gsp_firmware_version", node.library_version() or "N/A"),
        ("ibmnpu", _same("N/A", "relaxed_ordering_mode")),
        (
            "pci",
            [
                ("pci_bus", bus),
                ("pci_device", rest.split(".")[0]),
                ("pci_domain", domain[-4:]),
                ("pci_base_class", "3"),
                ("pci_sub_class", "2"),
                ("pci_device_id", "233010DE"),
                ("pci_bus_id", gpu["pci_address"]),
                ("pci_sub_system_id", "16C110DE"),
                (
                    "pci_gpu_link_info",
                    [
                        (
                            "pcie_gen",
                            [
                                ("max_link_gen", "5"),
                                ("current_link_gen", generation),
                                ("device_current_link_gen", generation),
                                ("max_device_link_gen", "5"),
                                ("max_host_link_gen", "5"),
                            ],
                        ),
                        ("link_widths", [("max_link_width", "16x"), ("current_link_width", width)]),
                    ],
                ),
                ("pci_bridge_chip", _same("N/A", "bridge_chip_type", "bridge_chip_fw")),
                *_same("0", "replay_counter", "replay_rollover_counter"),
                *_same("0 KB/s", "tx_util", "rx_util"),
                ("atomic_caps_outbound", "N/A"),
                ("atomic_caps_inbound", "N/A"),
            ],
        ),
        ("fan_speed", "N/A"),
        ("performance_state", "P0"),
        (
            "clocks_event_reasons",
            [
                ("clocks_event_reason_gpu_idle", "Active"),
                *_same(
                    "Not Active",
                    "clocks_event_reason_applications_clocks_setting",
                    "clocks_event_reason_sw_power_cap",
                    "clocks_event_reason_hw_slowdown",
                    "clocks_event_reason_hw_thermal_slowdown",
                    "clocks_event_reason_hw_power_brake_slowdown",
                    "clocks_event_reason_sync_boost",
                    "clocks_event_reason_sw_thermal_slowdown",
                    "clocks_event_reason_display_clocks_setting",
                ),
            ],
        ),
        ("sparse_operation_mode", "N/A"),
        (
            "fb_memory_usage",
            [
                ("total", "{} MiB".format(gpu["memory_mib"])),
                ("reserved", "551 MiB"),
                ("used", "4 MiB"),
                ("free", "{} MiB".format(gpu["memory_mib"] - 555)),
            ],
        ),
        ("bar1_memory_usage", [("total", "131072 MiB"), ("used", "1 MiB"), ("free", "131071 MiB")]),
        ("cc_protected_memory_usage", _same("0 MiB", "total", "used", "free")),
        ("compute_mode", "Default"),
        (
            "utilization",
            _same("0 %", "gpu_util", "memory_util", "encoder_util", "decoder_util", "jpeg_util", "ofa_util"),
        ),
        ("encoder_stats", _same("0", "session_count", "average_fps", "average_latency")),
        ("fbc_stats", _same("0", "session_count", "average_fps", "average_latency")),
        ("dram_encryption_mode", _same("Disabled", "current_dram_encryption", "pending_dram_encryption")),
        ("ecc_mode", _same("Enabled", "current_ecc", "pending_ecc")),
        (
            "ecc_errors",
            [
                (
                    "volatile",
                    [
                        *_same("0", "sram_correctable", "sram_uncorrectable_parity", "sram_uncorrectable_secded"),
                        ("dram_correctable", correctable),
                        ("dram_uncorrectable", volatile),
                    ],
                ),
                (
                    "aggregate",
                    [
                        *_same("0", "sram_correctable", "sram_uncorrectable_parity", "sram_uncorrectable_secded"),
                        ("dram_correctable", correctable),
                        ("dram_uncorrectable", str(gpu["ecc_aggregate_uncorrectable"])),
                        ("sram_threshold_exceeded", "No"),
                    ],
                ),
                (
                    "aggregate_uncorrectable_sram_sources",
                    _same("0", "sram_l2", "sram_sm", "sram_microcontroller", "sram_pcie", "sram_other"),
                ),
            ],
        ),
        (
            "retired_pages",
            [
                ("multiple_single_bit_retirement", _same("N/A", "retired_count", "retired_pagelist")),
                ("double_bit_retirement", _same("N/A", "retired_count", "retired_pagelist")),
                *_same("N/A", "pending_blacklist", "pending_retirement"),
            ],
        ),
        (
            "remapped_rows",
            [
                ("remapped_row_corr", str(gpu["remapped_correctable"])),
                ("remapped_row_unc", str(gpu["remapped_uncorrectable"])),
                ("remapped_row_pending", yes(gpu["remap_pending"])),
                ("remapped_row_failure", yes(gpu["remap_failure"])),
                (
                    "row_remapper_histogram",
                    [
                        ("row_remapper_histogram_max", f"{2560 - min(remapped, 2560)} bank(s)"),
                        ("row_remapper_histogram_high", f"{min(remapped, 2560)} bank(s)"),
                        *_same(
                            "0 bank(s)",
                            "row_remapper_histogram_partial",
                            "row_remapper_histogram_low",
                            "row_remapper_histogram_none",
                        ),
                    ],
                ),
            ],
        ),
        (
            "temperature",
            [
                ("gpu_temp", "{} C".format(gpu["temperature_celsius"])),
                ("gpu_temp_tlimit", "{} C".format(85 - gpu["temperature_celsius"])),
                ("gpu_temp_max_tlimit_threshold", "-8 C"),
                ("gpu_temp_slow_tlimit_threshold", "-2 C"),
                ("gpu_temp_max_gpu_tlimit_threshold", "0 C"),
                ("gpu_target_temperature", "N/A"),
                ("memory_temp", "{} C".format(gpu["temperature_celsius"] + 9)),
                ("gpu_temp_max_mem_tlimit_threshold", "0 C"),
            ],
        ),
        ("supported_gpu_target_temp", _same("N/A", "gpu_target_temp_min", "gpu_target_temp_max")),
        (
            "gpu_power_readings",
            [
                ("power_state", "P0"),
                *_same(draw, "average_power_draw", "instant_power_draw"),
                *_same(limit, "current_power_limit", "requested_power_limit"),
                ("default_power_limit", "700.00 W"),
                ("min_power_limit", "200.00 W"),
                ("max_power_limit", "700.00 W"),
            ],
        ),
        ("gpu_memory_power_readings", _same("N/A", "average_power_draw", "instant_power_draw")),
        (
            "module_power_readings",
            [
                ("power_state", "P0"),
                *_same(
                    "N/A",
                    "average_power_draw",
                    "instant_power_draw",
                    "current_power_limit",
                    "requested_power_limit",
                    "default_power_limit",
                    "min_power_limit",
                    "max_power_limit",
                ),
            ],
        ),
        ("power_smoothing", "N/A"),
        ("power_profiles", _same("N/A", "power_profile_requested_profiles", "power_profile_enforced_profiles")),
        (
            "clocks",
            [*_same(graphics, "graphics_clock", "sm_clock"), ("mem_clock", memory), ("video_clock", "1545 MHz")],
        ),
        ("applications_clocks", [("graphics_clock", "1980 MHz"), ("mem_clock", "2619 MHz")]),
        ("default_applications_clocks", [("graphics_clock", "1980 MHz"), ("mem_clock", "2619 MHz")]),
        ("deferred_clocks", [("mem_clock", "N/A")]),
        (
            "max_clocks",
            [*_same("1980 MHz", "graphics_clock", "sm_clock"), ("mem_clock", "2619 MHz"), ("video_clock", "1545 MHz")],
        ),
        ("max_customer_boost_clocks", [("graphics_clock", "1980 MHz")]),
        ("clock_policy", _same("N/A", "auto_boost", "auto_boost_default")),
        ("voltage", [("graphics_volt", DEPRECATED)]),
        (
            "fabric",
            [
                ("state", fabric_state()),
                ("status", fabric_status()),
                *_same("N/A", "cliqueId", "clusterUuid"),
                (
                    "health",
                    _same(
                        "N/A",
                        "bandwidth",
                        "route_recovery_in_progress",
                        "route_unhealthy",
                        "access_timeout_recovery",
                    ),
                ),
            ],
        ),
        ("processes", "\n\t\t"),
    ]


def lines(tree: Tree, depth: int) -> list[str]:
    """The tree as nvidia-smi indents it: one tab a level."""
    written: list[str] = []
    tabs = "\t" * depth
    for name, value in tree:
        if isinstance(value, str):
            written.append(f"{tabs}<{name}>{value}</{name}>")
        else:
            written += [f"{tabs}<{name}>", *lines(value, depth + 1), f"{tabs}</{name}>"]
    return written
