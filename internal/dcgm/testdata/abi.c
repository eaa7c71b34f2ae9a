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
SAME_PLACE(thin_connect_v2_params, timeout_ms, dcgmConnectV2Params_v2, timeoutMs);
SAME_PLACE(thin_connect_v2_params, unix_socket, dcgmConnectV2Params_v2, addressIsUnixSocket);
SAME_SIZE(thin_connect_v3_params, dcgmConnectV3Params_v1);
SAME_PLACE(thin_connect_v3_params, timeout_ms, dcgmConnectV3Params_v1, timeoutMs);

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

SAME_NUMBER(THIN_VERSION(thin_connect_v2_params, 2), dcgmConnectV2Params_version2);
SAME_NUMBER(THIN_VERSION(thin_connect_v3_params, 1), dcgmConnectV3Params_version1);
SAME_NUMBER(THIN_VERSION(thin_hierarchy, 2), dcgmMigHierarchy_version2);
SAME_NUMBER(THIN_ENTITIES_MAX, DCGM_GROUP_MAX_ENTITIES_V2);
SAME_NUMBER(THIN_HIERARCHY_MAX, DCGM_MAX_HIERARCHY_INFO);
SAME_NUMBER(THIN_EMBEDDED, DCGM_EMBEDDED_HANDLE);

/* The functions can be called as thin.h declares them. */
_Static_assert(sizeof(dcgmHandle_t) == sizeof(uintptr_t) && sizeof(dcgmGpuGrp_t) == sizeof(uintptr_t) &&
                   sizeof(dcgmFieldGrp_t) == sizeof(uintptr_t) && sizeof(dcgmReturn_t) == sizeof(int) &&
                   sizeof(dcgm_field_entity_group_t) == sizeof(unsigned) && sizeof(dcgm_field_eid_t) == sizeof(unsigned),
               "arguments");
SAME_NUMBER(1, DCGM_GROUP_EMPTY);
SAME_NUMBER(1, DCGM_FE_GPU);
SAME_NUMBER(4, DCGM_FE_GPU_I);

#ifdef ABI_WRONG
SAME_SIZE(thin_value, dcgmFieldValue_v2);
#endif
