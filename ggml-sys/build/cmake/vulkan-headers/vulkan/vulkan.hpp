// The system's vulkan.hpp, and what ggml needs of VK_EXT_layer_settings where the system's headers are older than
// 1.3.268 (Debian 12 has 1.3.239). ggml fills these in always, but enables the extension only if the loader has it;
// layouts and values are those of the Vulkan specification, and a loader skips a structure in a pNext chain whose type
// it does not know.
#pragma once

#include_next <vulkan/vulkan.hpp>

#ifndef VK_EXT_layer_settings

#include <cstdint>
#include <vector>

namespace VULKAN_HPP_NAMESPACE {

enum class LayerSettingTypeEXT : int32_t { eBool32 = 0 };

struct LayerSettingEXT {
    const char *pLayerName;
    const char *pSettingName;
    LayerSettingTypeEXT type;
    uint32_t valueCount;
    const void *pValues;
};

struct LayerSettingsCreateInfoEXT {
    explicit LayerSettingsCreateInfoEXT(const std::vector<LayerSettingEXT> &settings)
        : settingCount(static_cast<uint32_t>(settings.size())), pSettings(settings.data()) {}

    int32_t sType = 1000496000; // VK_STRUCTURE_TYPE_LAYER_SETTINGS_CREATE_INFO_EXT
    const void *pNext = nullptr;
    uint32_t settingCount;
    const LayerSettingEXT *pSettings;
};

} // namespace VULKAN_HPP_NAMESPACE

#endif
