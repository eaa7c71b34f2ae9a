package main

import (
	"regexp"
	"strings"
)

// words spells out abbreviations in field names.
var words = map[string]string{
	"AGG": "aggregate", "APP": "application", "AVAIL": "available", "BER": "bit error rate", "CBU": "CBU",
	"CI":     "compute instance",
	"CLOCKS": "clocks", "CRC": "CRC", "CX": "ConnectX", "DBE": "double-bit errors", "DEC": "decoder",
	"DEV":  "device memory",
	"DIAG": "diagnostic", "DL": "data link", "DMMA": "double-precision tensor", "DFMA": "double-precision tensor",
	"ECC": "ECC",
	"ENC": "encoder", "EUD": "extended utility diagnostic", "FB": "frame buffer", "FBC": "frame buffer capture",
	"FEC":  "FEC",
	"FLIT": "flow-control", "FP16": "FP16", "FP32": "FP32", "FP64": "FP64", "GI": "GPU instance", "GPU": "GPU",
	"GR":   "graphics",
	"HMMA": "half-precision tensor", "HYST": "hysteresis", "IB": "InfiniBand", "IBPC": "InfiniBand port", "ID": "id",
	"IDS":  "ids",
	"IMMA": "integer tensor", "IMM": "immediate", "INT": "integer", "INFO": "information", "INFOROM": "InfoROM",
	"L1": "L1 cache",
	"L2": "L2 cache", "LVL": "level", "MIG": "MIG", "MMA": "tensor", "NCCL": "NCCL", "NVDEC": "NVDEC", "NVJPG": "NVJPG",
	"NVLINK": "NVLink", "NVOFA": "NVOFA", "NVSWITCH": "NVSwitch", "PCI": "PCI", "PCIE": "PCIe", "PHYS": "physical",
	"PIDS": "process ids", "PLR": "physical-layer retransmission", "PPCNT": "port counter", "PPRM": "port recovery",
	"PRIV": "privilege",
	"PWR":  "power", "REG": "register file", "RX": "received", "SBE": "single-bit errors", "SHM": "shared memory",
	"SM":  "SM",
	"SRM": "SRAM", "SW": "software", "SXID": "SXID", "TEMP": "temperature", "TEX": "texture memory", "THERM": "thermal",
	"TMP": "total module power", "TX": "sent", "UTIL": "utilization", "UUID": "UUID", "VAL": "value",
	"VC0": "in virtual channel 0",
	"VC1": "in virtual channel 1", "VC2": "in virtual channel 2", "VC3": "in virtual channel 3", "VGPU": "vGPU",
	"VM":  "VM",
	"VOL": "volatile", "XID": "XID", "C2C": "C2C", "CPU": "CPU", "CONNECTX": "ConnectX", "B2B": "back to back",
}

// units lists parts of field names that only state a unit or type. describe leaves out those that are true, except at
// the beginning of a name.
var units = map[string]bool{
	"RATIO": true, "HERTZ": true, "JOULES": true, "BYTES": true, "WATTS": true, "CELSIUS": true, "SECONDS": true,
	"TOTAL": true,
	"NS":    true, "MVOLT": true, "RAW": false,
}

var lane = regexp.MustCompile(`^L(\d+)$`)

// describe returns the help text of a field. It is the text in facts.csv, if there is one. A base-unit field without a
// text has the help text of the field that it replaces. For other fields, the text is the name with its abbreviations
// spelled out.
func (f *field) describe(fields []*field) string {
	if f.help != "" {
		return f.help
	}
	for _, older := range fields {
		if f.baseOf != 0 && older.id == f.baseOf {
			return older.describe(fields)
		}
	}
	parts := strings.Split(strings.TrimPrefix(f.name, "DCGM_FI_"), "_")
	if parts[0] == "DEV" || parts[0] == "PROF" {
		parts = parts[1:]
	}
	nvlink := strings.Contains(f.name, "_NVLINK_") || strings.Contains(f.name, "_NVSWITCH_LINK_")
	var text []string
	for i, part := range parts {
		switch m := lane.FindStringSubmatch(part); {
		case nvlink && m != nil && strings.Contains(f.name, "NVSWITCH"):
			text = append(text, "in lane "+m[1])
		case nvlink && m != nil:
			text = append(text, "of link "+m[1])
		case units[part] && i > 0:
		case words[part] != "":
			text = append(text, words[part])
		default:
			text = append(text, strings.ToLower(part))
		}
	}
	s := strings.Join(text, " ")
	return strings.ToUpper(s[:1]) + s[1:]
}
