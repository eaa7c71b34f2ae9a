/* Compiled by TestABI and never run: compares thin.h with libdcgm's headers. */
#include <stdbool.h>

#include "dcgm_agent.h"
#include "dcgm_structs.h"
#include "dcgm_test_apis.h"

#include "thin.h"

#define SAME_SIZE(ours, theirs) _Static_assert(sizeof(ours) == sizeof(theirs), #ours)
#define SAME_PLACE(ours, member, theirs, other)                                  \
    _Static_assert(offsetof(ours, member) == offsetof(theirs, other) &&          \
                       sizeof(((ours *)0)->member) == sizeof(((theirs *)0)->other), \
                   #ours "." #member)
#define SAME_NUMBER(ours, theirs) _Static_assert((ours) == (theirs), #theirs)

SAME_SIZE(thin_value, dcgmFieldValue_v1);
SAME_PLACE(thin_value, version, dcgmFieldValue_v1, version);
SAME_PLACE(thin_value, field, dcgmFieldValue_v1, fieldId);
SAME_PLACE(thin_value, type, dcgmFieldValue_v1, fieldType);
SAME_PLACE(thin_value, status, dcgmFieldValue_v1, status);
SAME_PLACE(thin_value, ts, dcgmFieldValue_v1, ts);
SAME_PLACE(thin_value, value, dcgmFieldValue_v1, value);
SAME_PLACE(thin_value, value.str, dcgmFieldValue_v1, value.str);

SAME_SIZE(thin_connect_v2_params, dcgmConnectV2Params_v2);
SAME_PLACE(thin_connect_v2_params, unix_socket, dcgmConnectV2Params_v2, addressIsUnixSocket);
SAME_SIZE(thin_connect_v3_params, dcgmConnectV3Params_v1);

SAME_SIZE(thin_entity, dcgmGroupEntityPair_t);
SAME_PLACE(thin_entity, group, dcgmGroupEntityPair_t, entityGroupId);
SAME_PLACE(thin_entity, id, dcgmGroupEntityPair_t, entityId);

SAME_SIZE(thin_hierarchy_entry, dcgmMigHierarchyInfo_v2);
SAME_PLACE(thin_hierarchy_entry, entity, dcgmMigHierarchyInfo_v2, entity);
SAME_PLACE(thin_hierarchy_entry, parent, dcgmMigHierarchyInfo_v2, parent);
SAME_PLACE(thin_hierarchy_entry, info.nvml_instance, dcgmMigHierarchyInfo_v2, info.nvmlInstanceId);
SAME_PLACE(thin_hierarchy_entry, info.nvml_profile, dcgmMigHierarchyInfo_v2, info.nvmlMigProfileId);
SAME_SIZE(thin_hierarchy, dcgmMigHierarchy_v2);
SAME_PLACE(thin_hierarchy, count, dcgmMigHierarchy_v2, count);
SAME_PLACE(thin_hierarchy, entries, dcgmMigHierarchy_v2, entityList);

SAME_SIZE(thin_links, dcgmNvLinkStatus_v5);
SAME_PLACE(thin_links, gpu_count, dcgmNvLinkStatus_v5, numGpus);
SAME_PLACE(thin_links, gpus, dcgmNvLinkStatus_v5, gpus);
SAME_PLACE(thin_links, gpus[0].states, dcgmNvLinkStatus_v5, gpus[0].linkState);
SAME_PLACE(thin_links, switch_count, dcgmNvLinkStatus_v5, numNvSwitches);
SAME_PLACE(thin_links, switches, dcgmNvLinkStatus_v5, nvSwitches);
SAME_PLACE(thin_links, switches[0].states, dcgmNvLinkStatus_v5, nvSwitches[0].linkState);
SAME_SIZE(thin_links_old, dcgmNvLinkStatus_v4);
SAME_PLACE(thin_links_old, gpus[0].states, dcgmNvLinkStatus_v4, gpus[0].linkState);
SAME_PLACE(thin_links_old, switches, dcgmNvLinkStatus_v4, nvSwitches);

SAME_SIZE(thin_cpus, dcgmCpuHierarchy_v2);
SAME_PLACE(thin_cpus, count, dcgmCpuHierarchy_v2, numCpus);
SAME_PLACE(thin_cpus, cpus[1].id, dcgmCpuHierarchy_v2, cpus[1].cpuId);
SAME_PLACE(thin_cpus, cpus[1].cores.words, dcgmCpuHierarchy_v2, cpus[1].ownedCores.bitmask);
SAME_PLACE(thin_cpus, cpus[1].serial, dcgmCpuHierarchy_v2, cpus[1].serial);
SAME_SIZE(thin_cpus_old, dcgmCpuHierarchy_v1);
SAME_PLACE(thin_cpus_old, cpus[1].cores.words, dcgmCpuHierarchy_v1, cpus[1].ownedCores.bitmask);

SAME_SIZE(thin_place, dcgmDeviceTopology_v2);
SAME_PLACE(thin_place, cpus, dcgmDeviceTopology_v2, cpuAffinityMask);
SAME_PLACE(thin_place, count, dcgmDeviceTopology_v2, numGpus);
SAME_PLACE(thin_place, paths[1].id, dcgmDeviceTopology_v2, gpuPaths[1].gpuId);
SAME_PLACE(thin_place, paths[1].path, dcgmDeviceTopology_v2, gpuPaths[1].path);
SAME_SIZE(thin_place_old, dcgmDeviceTopology_v1);
SAME_PLACE(thin_place_old, paths[1].path, dcgmDeviceTopology_v1, gpuPaths[1].path);

SAME_NUMBER(THIN_VERSION(thin_links, 5), dcgmNvLinkStatus_version5);
SAME_NUMBER(THIN_VERSION(thin_links_old, 4), dcgmNvLinkStatus_version4);
SAME_NUMBER(THIN_VERSION(thin_cpus, 2), dcgmCpuHierarchy_version2);
SAME_NUMBER(THIN_VERSION(thin_cpus_old, 1), dcgmCpuHierarchy_version1);
SAME_NUMBER(THIN_VERSION(thin_place, 2), dcgmDeviceTopology_version2);
SAME_NUMBER(THIN_VERSION(thin_place_old, 1), dcgmDeviceTopology_version1);
SAME_NUMBER(THIN_VERSION(thin_connect_v2_params, 2), dcgmConnectV2Params_version2);
SAME_NUMBER(THIN_VERSION(thin_connect_v3_params, 1), dcgmConnectV3Params_version1);
SAME_NUMBER(THIN_VERSION(thin_hierarchy, 2), dcgmMigHierarchy_version2);
SAME_NUMBER(THIN_ENTITIES_MAX, DCGM_GROUP_MAX_ENTITIES_V2);
SAME_NUMBER(THIN_HIERARCHY_MAX, DCGM_MAX_HIERARCHY_INFO);
SAME_NUMBER(THIN_EMBEDDED, DCGM_EMBEDDED_HANDLE);

SAME_SIZE(thin_incident, dcgmIncidentInfo_t);
SAME_PLACE(thin_incident, result, dcgmIncidentInfo_t, health);
SAME_PLACE(thin_incident, code, dcgmIncidentInfo_t, error.code);
SAME_PLACE(thin_incident, entity, dcgmIncidentInfo_t, entityInfo);
SAME_SIZE(thin_health, dcgmHealthResponse_v5);
SAME_PLACE(thin_health, count, dcgmHealthResponse_v5, incidentCount);
SAME_PLACE(thin_health, incidents, dcgmHealthResponse_v5, incidents);
SAME_SIZE(thin_peers, dcgmNvLinkP2PStatus_v1);
SAME_PLACE(thin_peers, count, dcgmNvLinkP2PStatus_v1, numGpus);
SAME_PLACE(thin_peers, gpus, dcgmNvLinkP2PStatus_v1, gpus);
SAME_PLACE(thin_peers, gpus[0].states, dcgmNvLinkP2PStatus_v1, gpus[0].linkStatus);
SAME_NUMBER(THIN_VERSION(thin_health, 5), dcgmHealthResponse_version5);
SAME_NUMBER(THIN_VERSION(thin_peers, 1), dcgmNvLinkP2PStatus_version1);

/* The functions can be called as thin.h declares them. */
_Static_assert(sizeof(dcgmHandle_t) == sizeof(uintptr_t) && sizeof(dcgmGpuGrp_t) == sizeof(uintptr_t) &&
                   sizeof(dcgmFieldGrp_t) == sizeof(uintptr_t) && sizeof(dcgmReturn_t) == sizeof(int) &&
                   sizeof(dcgm_field_entity_group_t) == sizeof(unsigned) &&
                   sizeof(dcgm_field_eid_t) == sizeof(unsigned),
               "arguments");
SAME_NUMBER(1, DCGM_GROUP_EMPTY);
SAME_NUMBER(1, DCGM_FE_GPU);
SAME_NUMBER(3, DCGM_FE_SWITCH);
SAME_NUMBER(4, DCGM_FE_GPU_I);
SAME_NUMBER(5, DCGM_FE_GPU_CI);
SAME_NUMBER(6, DCGM_FE_LINK);
SAME_NUMBER(7, DCGM_FE_CPU);
SAME_NUMBER(8, DCGM_FE_CPU_CORE);
SAME_NUMBER(9, DCGM_FE_CONNECTX);
SAME_NUMBER(2, DcgmNvLinkLinkStateDown);
SAME_NUMBER(700, DCGM_FI_FIRST_NVSWITCH_FIELD_ID);
SAME_NUMBER(899, DCGM_FI_LAST_NVSWITCH_FIELD_ID);
SAME_NUMBER(0x20, DCGM_TOPOLOGY_SYSTEM);
SAME_NUMBER(0x100, DCGM_TOPOLOGY_NVLINK1);

#ifdef ABI_WRONG
SAME_SIZE(thin_value, dcgmFieldValue_v2);
#endif
